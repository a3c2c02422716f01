"""An SVG of how many times better one side is than the other, against what was to be reached."""
from html import escape

WIDTH, LEFT, RIGHT, ROW, HEAD = 760, 300, 90, 22, 46
GOOD, SHORT, INK, FAINT = "#2f7d4f", "#b4532a", "#222222", "#bbbbbb"


def figure(factor, end, tick, y):
    """The number at the end of its bar: behind it, or within where the tick would cross it."""
    text = f"{factor:.2f}x" if factor < 1 else f"{factor:.1f}x"
    if end <= tick < end + 6 + 7 * len(text):
        return f'<text x="{end - 6:.1f}" y="{y + 11}" text-anchor="end" fill="white">{text}</text>'
    return f'<text x="{end + 6:.1f}" y="{y + 11}">{text}</text>'


def factor_chart(title, rows):
    """`rows`: (label, factor, bar or None). A tick marks the bar; 1 is even."""
    top = max(max(factor, bar or 0) for _, factor, bar in rows) * 1.05
    scale = (WIDTH - LEFT - RIGHT) / top
    height = HEAD + ROW * len(rows) + 14
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
           f'font-family="sans-serif" font-size="12" fill="{INK}">',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           f'<text x="12" y="22" font-size="14">{escape(title)}</text>',
           f'<line x1="{LEFT + scale:.1f}" y1="{HEAD - 6}" x2="{LEFT + scale:.1f}" y2="{height - 10}" stroke="{FAINT}"/>']
    for i, (label, factor, bar) in enumerate(rows):
        y = HEAD + ROW * i
        colour = GOOD if not bar or factor >= bar else SHORT
        svg.append(f'<text x="{LEFT - 8}" y="{y + 11}" text-anchor="end">{escape(label)}</text>')
        svg.append(f'<rect x="{LEFT}" y="{y}" width="{factor * scale:.1f}" height="14" fill="{colour}"/>')
        if bar:
            x = LEFT + bar * scale
            svg.append(f'<line x1="{x:.1f}" y1="{y - 3}" x2="{x:.1f}" y2="{y + 17}" stroke="{INK}" stroke-width="2"/>')
        svg.append(figure(factor, LEFT + factor * scale, LEFT + (bar or 0) * scale, y))
    svg.append("</svg>")
    return "\n".join(svg) + "\n"
