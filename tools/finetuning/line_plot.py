"""A plot of lines as a self-contained SVG."""

import html

_COLORS = ("#4477aa", "#ee6677", "#228833", "#aa8800", "#66ccee", "#aa3377")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 360, 64, 16, 40, 48


def _ticks(low, high):
    """Returns about five round numbers in [low, high]."""
    step = 10.0 ** -12
    while (high - low) / step > 6:
        for factor in (2, 2.5, 2):
            step *= factor
            if (high - low) / step <= 6:
                break
    first = -(-low // step)
    return [i * step for i in range(int(first), int(high / step + 1e-9) + 1)] or [low]


def line_plot(path, title, x_label, y_label, series, y_range=None):
    """Writes a plot to `path`.

    `series` is name -> [(x, y), ...]. `y_range` is (low, high). By default it covers 0 and all
    values.
    """
    points = [point for line in series.values() for point in line]
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    y_low, y_high = y_range or (min(0, *(y for _, y in points)), max(y for _, y in points))
    x_span, y_span = (x_high - x_low) or 1, (y_high - y_low) or 1

    def place(x, y):
        return (_LEFT + (x - x_low) / x_span * (_WIDTH - _LEFT - _RIGHT),
                _HEIGHT - _BOTTOM - (y - y_low) / y_span * (_HEIGHT - _TOP - _BOTTOM))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT + 18 * len(series)}" '
           'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{_LEFT}" y="20">{html.escape(title)}</text>',
           f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 14}" text-anchor="middle">{html.escape(x_label)}</text>',
           f'<text x="{_LEFT}" y="{_TOP - 6}" fill="#555">{html.escape(y_label)}</text>']
    for tick in _ticks(y_low, y_low + y_span):
        y = place(x_low, tick)[1]
        out.append(f'<path d="M{_LEFT},{y:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>'
                   f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.4g}</text>')
    for tick in _ticks(x_low, x_low + x_span):
        x = place(tick, y_low)[0]
        out.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{tick:.4g}</text>')
    for n, (name, line) in enumerate(series.items()):
        color, y = _COLORS[n % len(_COLORS)], _HEIGHT + 18 * n
        places = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in line)
        out.append(f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="1.5"/>'
                   f'<path d="M{_LEFT},{y}h24" stroke="{color}" stroke-width="2"/>'
                   f'<text x="{_LEFT + 32}" y="{y + 4}">{html.escape(name)}</text>')
    path.write_text("\n".join([*out, "</svg>"]) + "\n", encoding="utf-8")
