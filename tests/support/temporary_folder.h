// SPDX-License-Identifier: Apache-2.0
// TemporaryFolder: a folder of a test's own below the system's, gone with it and all it holds. A
// test that cannot have one ends at once and says why. Tests only.
#ifndef PARALLAX_TESTS_SUPPORT_TEMPORARY_FOLDER_H_
#define PARALLAX_TESTS_SUPPORT_TEMPORARY_FOLDER_H_

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace parallax::testkit {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "parallax-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), "mkdtemp " + name);
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  // The path of a file in it that now holds `text`.
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

}  // namespace parallax::testkit

#endif  // PARALLAX_TESTS_SUPPORT_TEMPORARY_FOLDER_H_
