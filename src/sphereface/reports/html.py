"""A report as one HTML file: no scripts, no external files, readable on a phone, light or dark by preference."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from sphereface.reports.figures import Picture

STYLE = """
:root { color-scheme: light dark; --ink: #23262b; --soft: #667; --paper: #fcfcfd; --line: #dde1e6; --good: #14804a }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dfe3e8; --soft: #99a3ad; --paper: #15181c; --line: #333a42; --good: #54c98a } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem } h2 { font-size: 1.2rem; margin: 2.2rem 0 .4rem }
p { margin: .4rem 0; max-width: 46rem } .soft, figcaption { color: var(--soft); font-size: .9rem }
.note { border-left: 3px solid #e0a12e; padding-left: .8rem }
figure { margin: .8rem 0; overflow-x: auto } img { max-width: 100%; height: auto }
.wide img { max-width: none; width: 56rem }
.faces { display: flex; flex-wrap: wrap; gap: .4rem; margin: .6rem 0 }
.faces img { border-radius: .3rem; display: block }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6rem 0 }
th, td { padding: .35rem .8rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left } td.best { color: var(--good); font-weight: 600 }
a { color: inherit }
pre { overflow-x: auto; font-size: .85rem; color: var(--soft) }
"""


class Report:
    """A page built section by section; `write` may be called at any time."""

    def __init__(self, title: str, lead: str) -> None:
        self.title = title
        self.parts = [f"<h1>{escape(title)}</h1>", f'<p class="soft">{escape(lead)}</p>']

    def heading(self, text: str) -> None:
        """Begin a section."""
        self.parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str, *, note: bool = False) -> None:
        """Add a paragraph."""
        self.parts.append(f'<p class="note">{escape(text)}</p>' if note else f"<p>{escape(text)}</p>")

    def figure(self, picture: Picture, caption: str, *, wide: bool = False) -> None:
        """Add a picture; a wide one scrolls on a small screen instead of shrinking."""
        self.parts.append(
            f"<figure{' class=wide' if wide else ''}><picture>"
            f'<source media="(prefers-color-scheme: dark)" srcset="{picture.uri("dark")}">'
            f'<img src="{picture.uri("light")}" alt="{escape(picture.says)}"></picture>'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )

    def thumbnails(self, images: Sequence[tuple[bytes, str]]) -> None:
        """Add small pictures in rows, each a JPEG with its name, which also is its alternative text."""
        cells = "".join(
            f'<span><img src="data:image/jpeg;base64,{base64.b64encode(image).decode()}" alt="{escape(name)}" '
            f'title="{escape(name)}"></span>'
            for image, name in images
        )
        self.parts.append(f'<div class="faces">{cells}</div>')

    def table(
        self, head: Sequence[str], rows: Sequence[Sequence[str]], *, best: Sequence[tuple[int, int]] = ()
    ) -> None:
        """Add a table; `best` are the (row, column) cells to mark."""
        cells = "".join(f"<th>{escape(name)}</th>" for name in head)
        body = ""
        for place, row in enumerate(rows):
            marks = [" class=best" if (place, column) in best else "" for column in range(len(row))]
            tds = [f"<td{mark}>{escape(cell)}</td>" for mark, cell in zip(marks, row, strict=True)]
            body += f"<tr>{''.join(tds)}</tr>"
        self.parts.append(
            f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'
        )

    def link(self, target: str, text: str) -> None:
        """Add a link to a file beside the page."""
        self.parts.append(f'<p><a href="{escape(target, quote=True)}">{escape(text)}</a></p>')

    def code(self, text: str) -> None:
        """Add preformatted text."""
        self.parts.append(f"<pre>{escape(text)}</pre>")

    def html(self) -> str:
        """The whole page."""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style></head>\n<body>\n"
            + "\n".join(self.parts)
            + "\n</body></html>\n"
        )

    def write(self, path: Path) -> None:
        """Write the page atomically: the file is the new page or the old one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_text(self.html(), encoding="utf-8")
        part.replace(path)
