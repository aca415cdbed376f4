"""The parts of a chart: scales, ticks, labels, and a file that an XML parser takes."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from weft import svg
from weft.svg import Panel, Scale, Tick

SPACE = "{http://www.w3.org/2000/svg}"


def test_a_scale_is_linear_or_logarithmic_and_ends_at_its_edges() -> None:
    linear, logarithmic = Scale(0, 10, 100, 200), Scale(1, 100, 0, 100, logarithmic=True)
    assert [linear(value) for value in (-5, 0, 5, 10, 20)] == [100, 100, 150, 200, 200]
    assert [logarithmic(value) for value in (0.1, 1, 10, 100, 1e5)] == [0, 0, 50, 100, 100]
    assert Scale(3, 3, 0, 100)(3) == 0


def test_one_value_still_has_an_axis() -> None:
    assert svg.decades([1e9]) == [1e9, 1e10]
    assert svg.decades([2e6, 3e8]) == [1e6, 1e7, 1e8, 1e9]
    assert svg.round_ticks(0.0, (1.0, 2.0)) == [0.0]


def test_ticks_are_round_and_few() -> None:
    assert svg.round_ticks(9.0, (1.0, 2.0, 5.0)) == [float(number) for number in range(10)]
    assert svg.round_ticks(19.0, (1.0, 2.0, 5.0)) == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0]
    assert len(svg.round_ticks(1e9, (1.0, 2.0))) == 11


def test_a_label_that_has_no_room_is_cut_short() -> None:
    assert svg.fit("a/0.0", 100) == "a/0.0"
    cut = svg.fit("a-host-with-a-long-name/0.0", 100)
    assert cut.endswith("…")
    assert svg.text_width(cut) <= 100


def test_a_legend_takes_as_many_rows_as_it_needs() -> None:
    entries = tuple((f"backend {number}", "#123456") for number in range(5))
    one, several = svg.Legend(entries), svg.Legend(entries, 200)
    assert several.height > one.height == svg.LEGEND_ROW_PX
    squares = [ET.fromstring(mark) for mark in several.draw(10, 20) if mark.startswith("<rect")]
    assert all(10 <= float(square.attrib["x"]) < 210 for square in squares)
    assert len({square.attrib["y"] for square in squares}) == several.height / svg.LEGEND_ROW_PX


def test_a_chart_is_a_whole_file_with_text_that_is_escaped() -> None:
    panel = Panel(50, 20, 200, 100)
    x, y = panel.across(0, 10), panel.upward(1, 100, logarithmic=True)
    root = ET.fromstring(
        svg.document(
            300,
            160,
            [
                *panel.x_axis(x, [Tick(0, "0"), Tick(10, "10")], "<time>"),
                *panel.y_axis(y, [Tick(1, "1"), Tick(100, "100")], "a & b"),
                *svg.Legend((("one", "#123456"), ("two", ".quiet"))).draw(0, 12),
                svg.curve([(x(1), y(2)), (x(3), y(4))], svg.PALETTE[0]),
                svg.bar(0, 0, 0.5, 10, ".ink", tooltip="<short>", least=2.0),
                svg.dot(1, 2, "red"),
                svg.triangle(1, 2, ".ink"),
                panel.frame(),
            ],
        )
    )
    texts = [element.text for element in root.iter(f"{SPACE}text")]
    assert texts == ["0", "10", "<time>", "1", "100", "a & b", "one", "two"]
    assert [element.text for element in root.iter(f"{SPACE}title")] == ["<short>"]
    assert root.findall(f"{SPACE}rect[@class='quiet']")
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SPACE}style") or "")
