"""Checks the pictures of docs/pictures for tests/tidy, by what docs/pictures/draw.py draws."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../docs/pictures"))

from draw import Wrong, draw, parse  # pylint: disable=wrong-import-position

PICTURES, LAYERS = "docs/pictures/", "docs/pictures/layers.txt"


def wrong_pictures(tree):
    """(path, message) of each picture that is not what its text draws."""
    for path in [p for p in tree.paths if p.startswith(PICTURES)]:
        stem, kind = os.path.splitext(path)
        if kind == ".svg" and stem + ".txt" not in tree.paths:
            yield path, f"there is no {stem}.txt that draws it"
        elif kind == ".txt":
            try:
                drawn = draw(tree.text(path))
            except Wrong as wrong:
                yield path, str(wrong)
                continue
            if stem + ".svg" not in tree.paths or tree.text(stem + ".svg") != drawn:
                yield path, f"{stem}.svg is not what this draws: run {PICTURES}draw.py"


def wrong_layers(tree, heights, pure, beside):
    """(path, message) where layers.txt shows other layers, or other pairs of one height.

    `heights` {layer: height}; `pure` those that do no I/O; `beside` [(layer, included layer)].
    """
    if LAYERS not in tree.paths:
        return
    shown = parse(tree.text(LAYERS))
    rows = [sorted((name, look) for look, name, _ in row) for row in shown["rows"]]
    layers = [sorted((name, "pure" if name in pure else "io")
                     for name in heights if heights[name] == height)
              for height in sorted(set(heights.values()), reverse=True)]
    if rows != layers:
        yield LAYERS, f"the layers are {layers}"
    if sorted(map(tuple, shown["beside"])) != sorted(beside):
        yield LAYERS, f"the neighbours that are included are {sorted(beside)}"
