"""Write docs/lines.md: `python -m benchmarks.lines`."""

from benchmarks.lines.page import FILE, page

if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
