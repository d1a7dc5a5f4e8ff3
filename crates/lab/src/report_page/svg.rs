//! Two kinds of plot as SVG: bars in groups, and curves. Every mark has a title that contains its
//! numbers, and whiskers from the least to the greatest if there are several measurements.

use super::html::escape;
use super::spread::{Spread, short};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 330.0;
/// Room for the axis' numbers.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
/// The name and one line of legend.
const TOP: f64 = 54.0;
const BOTTOM: f64 = 46.0;
const LEGEND_LINE: f64 = 18.0;
/// About what a character takes.
const CHARACTER: f64 = 6.6;

/// How a row of marks is called and painted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) colour: &'static str,
}

/// A bar for every group and key of which there is something.
pub(super) struct Bars {
    pub(super) name: String,
    /// What the numbers are.
    pub(super) unit: String,
    /// What groups are.
    pub(super) across: String,
    pub(super) groups: Vec<String>,
    /// For each key one number of runs per group.
    pub(super) series: Vec<(Key, Vec<Option<Spread>>)>,
}

/// A curve through the medians of every key.
pub(super) struct Curves {
    pub(super) name: String,
    pub(super) unit: String,
    /// What runs along the horizontal axis.
    pub(super) across: String,
    /// In order of their place on that axis, from 0 up.
    pub(super) series: Vec<(Key, Vec<(f64, Spread)>)>,
}

impl Bars {
    pub(super) fn svg(&self) -> String {
        let keys: Vec<&Key> = self.series.iter().map(|(key, _)| key).collect();
        let all = self.series.iter().flat_map(|(_, bars)| bars.iter().flatten());
        let mut plot = Plot::new(&self.name, &self.unit, &keys, all);
        let group_width = plot.width() / self.groups.len().max(1) as f64;
        let bar_width = group_width * 0.84 / self.series.len().max(1) as f64;
        for (g, group) in self.groups.iter().enumerate() {
            let middle = LEFT + group_width * (g as f64 + 0.5);
            plot.label(middle, group);
            let bars =
                self.series.iter().filter_map(|(key, bars)| Some((key, bars.get(g)?.as_ref()?)));
            let left = middle - bar_width * bars.clone().count() as f64 / 2.0;
            for (i, (key, spread)) in bars.enumerate() {
                let title = format!("{group}, {}: {spread}, {}", key.name, runs(spread));
                plot.bar(left + bar_width * i as f64, bar_width, key, spread, &title);
            }
        }
        plot.across(&self.across);
        plot.finish()
    }
}

impl Curves {
    pub(super) fn svg(&self) -> String {
        let keys: Vec<&Key> = self.series.iter().map(|(key, _)| key).collect();
        let points = || self.series.iter().flat_map(|(_, points)| points);
        let mut plot = Plot::new(&self.name, &self.unit, &keys, points().map(|point| &point.1));
        let mut places: Vec<f64> = points().map(|point| point.0).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let greatest = places.last().copied().filter(|x| *x > 0.0).unwrap_or(1.0);
        let width = plot.width() - 30.0;
        let across = |x: f64| LEFT + 15.0 + width * x / greatest;
        // Only as many labels as have room beside each other.
        let mut free = f64::MIN;
        for place in &places {
            let text = short(*place);
            let half = text.len() as f64 * CHARACTER / 2.0 + 2.0;
            if across(*place) - half >= free {
                plot.label(across(*place), &text);
                free = across(*place) + half;
            }
        }
        plot.across(&self.across);
        for (key, points) in &self.series {
            let at = points.iter().map(|(x, spread)| (across(*x), spread.median));
            plot.curve(key, at);
            for (x, spread) in points {
                let title = format!(
                    "{} = {}, {}: {spread}, {}",
                    self.across,
                    short(*x),
                    key.name,
                    runs(spread)
                );
                plot.point(across(*x), key, spread, &title);
            }
        }
        plot.finish()
    }
}

fn runs(spread: &Spread) -> String {
    format!("{} run{}", spread.count, if spread.count == 1 { "" } else { "s" })
}

/// A plot under construction: frame, axis, marks.
struct Plot {
    out: String,
    top: f64,
    /// Of the vertical axis, in the numbers' unit.
    greatest: f64,
}

impl Plot {
    fn new<'a>(
        name: &str,
        unit: &str,
        keys: &[&Key],
        all: impl Iterator<Item = &'a Spread>,
    ) -> Plot {
        let step = tick_step(all.map(|spread| spread.greatest).fold(0.0, f64::max));
        let (steps, step) = step;
        let (legend, lines) = legend(keys);
        let top = TOP + LEGEND_LINE * (lines as f64 - 1.0).max(0.0);
        let mut plot = Plot { out: legend, top, greatest: step * steps as f64 };
        plot.text(LEFT, 18.0, "name", "start", name);
        plot.text(WIDTH - RIGHT, 18.0, "unit", "end", unit);
        for tick in 0..=steps {
            let value = step * tick as f64;
            let y = plot.y(value);
            let class = if tick == 0 { "axis" } else { "grid" };
            plot.line(class, (LEFT, y), (WIDTH - RIGHT, y));
            plot.text(LEFT - 6.0, y + 4.0, "tick", "end", &short(value));
        }
        let label = escape(&format!("{name}, {unit}"));
        let height = plot.height();
        plot.out.insert_str(
            0,
            &format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{label}\" \
                 width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n"
            ),
        );
        plot
    }

    fn height(&self) -> f64 {
        HEIGHT + self.top - TOP
    }

    fn width(&self) -> f64 {
        WIDTH - LEFT - RIGHT
    }

    fn y(&self, value: f64) -> f64 {
        let bottom = self.height() - BOTTOM;
        bottom - (bottom - self.top) * value / self.greatest
    }

    fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        self.out.push_str(&format!(
            "<text class=\"{class}\" x=\"{x:.2}\" y=\"{y:.2}\" text-anchor=\"{anchor}\">{}</text>\n",
            escape(&text)
        ));
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.out.push_str(&format!(
            "<line class=\"{class}\" x1=\"{:.2}\" y1=\"{:.2}\" x2=\"{:.2}\" y2=\"{:.2}\"/>\n",
            from.0, from.1, to.0, to.1
        ));
    }

    /// A word under the horizontal axis.
    fn label(&mut self, x: f64, text: &str) {
        let y = self.height() - BOTTOM + 16.0;
        self.text(x, y, "label", "middle", text);
    }

    /// What runs along the horizontal axis.
    fn across(&mut self, text: &str) {
        let y = self.height() - 10.0;
        self.text(LEFT + self.width() / 2.0, y, "across", "middle", text);
    }

    fn bar(&mut self, x: f64, width: f64, key: &Key, spread: &Spread, title: &str) {
        let (y, bottom) = (self.y(spread.median), self.y(0.0));
        self.out.push_str(&format!(
            "<rect class=\"bar\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{:.2}\" height=\"{:.2}\" \
             fill=\"{}\"><title>{}</title></rect>\n",
            (width - 1.0).max(0.5),
            bottom - y,
            key.colour,
            escape(&title)
        ));
        self.whisker(x + (width - 1.0) / 2.0, spread);
        if width >= 24.0 {
            let y = self.y(spread.greatest) - 4.0;
            self.text(x + (width - 1.0) / 2.0, y, "value", "middle", &short(spread.median));
        }
    }

    fn curve(&mut self, key: &Key, points: impl Iterator<Item = (f64, f64)>) {
        let points: Vec<String> =
            points.map(|(x, value)| format!("{x:.2},{:.2}", self.y(value))).collect();
        self.out.push_str(&format!(
            "<polyline class=\"curve\" stroke=\"{}\" points=\"{}\"/>\n",
            key.colour,
            points.join(" ")
        ));
    }

    fn point(&mut self, x: f64, key: &Key, spread: &Spread, title: &str) {
        self.whisker(x, spread);
        self.out.push_str(&format!(
            "<circle class=\"point\" cx=\"{x:.2}\" cy=\"{:.2}\" r=\"4\" fill=\"{}\"><title>{}</title></circle>\n",
            self.y(spread.median),
            key.colour,
            escape(&title)
        ));
    }

    /// From the least to the greatest of several.
    fn whisker(&mut self, x: f64, spread: &Spread) {
        if spread.count > 1 {
            self.line("whisker", (x, self.y(spread.least)), (x, self.y(spread.greatest)));
        }
    }

    fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }
}

/// A coloured square and a name for each key; how many lines they fill.
fn legend(keys: &[&Key]) -> (String, usize) {
    let mut out = String::new();
    let (mut x, mut line) = (LEFT, 0);
    for key in keys {
        let width = 16.0 + key.name.chars().count() as f64 * CHARACTER + 12.0;
        if x > LEFT && x + width > WIDTH - RIGHT {
            (x, line) = (LEFT, line + 1);
        }
        let y = 30.0 + LEGEND_LINE * line as f64;
        out.push_str(&format!(
            "<rect class=\"key\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"11\" height=\"11\" fill=\"{}\"/>\n\
             <text class=\"key\" x=\"{:.2}\" y=\"{:.2}\">{}</text>\n",
            key.colour,
            x + 15.0,
            y + 10.0,
            escape(&key.name)
        ));
        x += width;
    }
    (out, line + 1)
}

/// How many steps, three to six, of which length (1, 2 or 5 times a power of ten) reach `greatest`.
fn tick_step(greatest: f64) -> (usize, f64) {
    if greatest <= 0.0 {
        return (4, 0.25);
    }
    let power = 10f64.powf((greatest / 6.0).log10().floor());
    let steps = |step: f64| (greatest / step).ceil() as usize;
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|s| steps(*s) <= 6);
    let step = step.unwrap_or(greatest);
    (steps(step).max(1), step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(numbers: &[f64]) -> String {
        let bars = numbers.iter().map(|n| Spread::of([*n])).collect();
        let key = Key { name: "a <b>".to_string(), colour: "#123456" };
        let groups = numbers.iter().map(|n| format!("{n}")).collect();
        let name = "x & y".to_string();
        let (unit, across) = ("u".to_string(), "g".to_string());
        Bars { name, unit, across, groups, series: vec![(key, bars)] }.svg()
    }

    /// The number behind `name="` in each element that starts with `element`.
    fn numbers(svg: &str, element: &str, name: &str) -> Vec<f64> {
        let elements = svg.split(element).skip(1);
        let value = |e: &str| {
            let (_, rest) = e.split_once(&format!(" {name}=\""))?;
            rest.split_once('"')?.0.parse().ok()
        };
        elements.filter_map(value).collect()
    }

    #[test]
    fn bars_are_as_high_as_their_numbers() {
        for scale in [1e-6, 0.03, 1.0, 17.0, 1e9] {
            let svg = bars(&[1.0 * scale, 2.0 * scale, 0.5 * scale]);
            let heights = numbers(&svg, "<rect class=\"bar\"", "height");
            assert_eq!(heights.len(), 3);
            assert!((heights[1] / heights[0] - 2.0).abs() < 0.01, "{heights:?}");
            assert!((heights[0] / heights[2] - 2.0).abs() < 0.01, "{heights:?}");
            // More than half of the plot is used, and nothing sticks out of it.
            assert!(heights[1] > 115.0 && heights[1] < 231.0, "{heights:?}");
        }
    }

    #[test]
    fn an_empty_or_flat_plot_is_a_plot() {
        for numbers in [&[][..], &[0.0], &[0.0, 0.0]] {
            let svg = bars(numbers);
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn curves_go_through_their_points() {
        let key = |name: &str| Key { name: name.to_string(), colour: "#123456" };
        let spread = |n: f64| Spread::of([n * 0.9, n, n * 1.2]).expect("three numbers");
        let series =
            vec![(key("a"), vec![(0.0, spread(10.0)), (1.0, spread(5.0)), (2.0, spread(20.0))])];
        let curves = Curves {
            name: "n".to_string(),
            unit: "u".to_string(),
            across: "z".to_string(),
            series,
        };
        let svg = curves.svg();
        let (x, y) = (numbers(&svg, "<circle", "cx"), numbers(&svg, "<circle", "cy"));
        assert!((x[1] * 2.0 - x[0] - x[2]).abs() < 0.02, "{x:?}");
        assert!(((y[1] - y[2]) / (y[1] - y[0]) - 3.0).abs() < 0.01, "{y:?}");
        for (x, y) in x.iter().zip(&y) {
            assert!(svg.contains(&format!("{x:.2},{y:.2}")), "the curve misses ({x}, {y})");
        }
        assert!(svg.contains("<title>z = 2, a: 20 (18 to 24), 3 runs</title>"), "{svg}");
        assert_eq!(svg.matches("class=\"whisker\"").count(), 3);
    }

    #[test]
    fn ticks_are_round_and_reach_the_greatest() {
        for greatest in [1e-5, 0.7, 1.0, 6.0, 6.1, 99.0, 100.0, 12345.0, 1e9] {
            let (steps, step) = tick_step(greatest);
            assert!((2..=6).contains(&steps) && step * steps as f64 >= greatest * 0.999_999);
            let digits = step / 10f64.powf(step.log10().floor());
            assert!([1.0, 2.0, 5.0].iter().any(|d| (digits - d).abs() < 1e-6), "{step}");
        }
    }
}
