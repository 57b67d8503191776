# SPDX-License-Identifier: Apache-2.0
"""The version of this package: that of the header it was written for."""

__version__ = "0.2.0"
