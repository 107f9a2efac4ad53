//! Charts as PNG files: residuals, row lengths, performance profiles.

use crate::{files, text};
use kuva::plot::{BarPlot, LinePlot, LineStyle, MarkerShape, ScatterPlot};
use kuva::render::annotations::ReferenceLine;
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use std::path::Path;
use std::sync::Arc;

/// Colours that people with red-green colour blindness can distinguish.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#666666"];

/// The residual history of one configuration (method and preconditioner).
#[derive(Clone, Debug, Default)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// Pairs of the number of iterations, summed over all configurations so far, and the relative residual from the recurrence.
    pub(crate) points: Vec<(f64, f64)>,
    /// The last iteration and the recomputed relative residual.
    pub(crate) recomputed: Option<(f64, f64)>,
}

/// Draws the residual histories of all configurations.
pub(crate) fn residuals(path: &Path, title: &str, curves: &[Curve], tolerance: f64) -> Result<(), String> {
    let mut plots: Vec<Plot> = vec![];
    let mut names: Vec<&str> = vec![];
    // a tolerance of zero has no place on the axis
    let threshold = (tolerance > 0.0).then(|| tolerance.log10());
    let (mut least, mut most) = threshold.map_or((f64::INFINITY, f64::NEG_INFINITY), |at| (at, at));
    let mut last = 1.0_f64;
    for (k, curve) in curves.iter().enumerate() {
        let sound = |(_, residual): &(f64, f64)| residual.is_finite() && *residual > 0.0;
        // logarithms on a linear axis, because kuva's logarithmic axis ends at 1e-10
        let logarithm = |(at, residual): (f64, f64)| (at, residual.log10());
        let points: Vec<_> = thinned(&curve.points).into_iter().filter(sound).map(logarithm).collect();
        let ends: Vec<_> = curve.recomputed.iter().copied().filter(sound).map(logarithm).collect();
        for &(at, residual) in points.iter().chain(&ends) {
            (least, most, last) = (least.min(residual), most.max(residual), last.max(at));
        }
        // a configuration that runs a second time gets the same colour and no second entry in the legend
        let first = names.iter().position(|name| *name == curve.name);
        let colour = COLOURS[first.unwrap_or(names.len()) % COLOURS.len()];
        let line = LinePlot::new().with_data(points).with_color(colour).with_stroke_width(1.8);
        plots.push(match first {
            Some(_) => line.into(),
            None => line.with_legend(curve.name.as_str()).into(),
        });
        if first.is_none() {
            names.push(&curve.name);
        }
        let circle = ScatterPlot::new().with_data(ends).with_color(colour).with_size(4.5);
        let circle = circle.with_marker(MarkerShape::Circle);
        let is_last = k + 1 == curves.len();
        plots.push(if is_last { circle.with_legend("recomputed").into() } else { circle.into() });
    }
    // both ends of the axis are powers of ten, at most twelve steps of `step` decades apart
    if least > most {
        (least, most) = (0.0, 0.0);
    }
    let top = most.ceil();
    let step = ((top - (least - 0.01).floor()) / 12.0).ceil().max(1.0);
    let bottom = top - step * ((top - least + 0.01) / step).ceil();
    let layout = Layout::auto_from_plots(&plots)
        .with_title(format!("{title}: residual relative to b"))
        .with_title_size(16)
        .with_x_label("iterations")
        .with_y_axis_min(bottom)
        .with_y_axis_max(top)
        .with_y_tick_step(step)
        .with_x_axis_min(0.0)
        .with_x_axis_max(1.03 * last)
        .with_y_tick_format(TickFormat::Custom(Arc::new(|value| format!("1e{value:.0}"))));
    let layout = match threshold {
        Some(threshold) => {
            let mut line = ReferenceLine::horizontal(threshold);
            line.color = "#888888".into();
            layout.with_reference_line(line)
        }
        None => layout,
    };
    save(path, plots, layout)
}

/// Reduces a curve to as many points as an image can show: the minimum and the maximum of each section.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    const MOST: usize = 1500;
    if points.len() <= 2 * MOST {
        return points.to_vec();
    }
    let by_residual = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let ends = |stretch: &[(f64, f64)]| {
        let mut ends =
            [stretch.iter().min_by(by_residual), stretch.iter().max_by(by_residual)].map(|p| p.copied());
        ends.sort_by(|a, b| a.map(|p| p.0).partial_cmp(&b.map(|p| p.0)).unwrap_or(std::cmp::Ordering::Equal));
        ends
    };
    let stretches = points.chunks(points.len().div_ceil(MOST));
    stretches.flat_map(|stretch| ends(stretch).into_iter().flatten()).collect()
}

/// Draws the histogram of row lengths.
pub(crate) fn lengths(path: &Path, title: &str, bars: &[(String, usize)]) -> Result<(), String> {
    // heights are logarithms on a linear axis that starts at 0.1 rows, so that the bar of a single row is
    // visible
    let height = |rows: usize| if rows > 0 { (10.0 * rows as f64).log10() } else { 0.0 };
    let most = bars.iter().map(|(_, rows)| height(*rows)).fold(1.0, f64::max);
    let bars = bars.iter().map(|(name, rows)| (name.clone(), height(*rows)));
    let plots: Vec<Plot> = vec![BarPlot::new().with_bars(bars).with_color(COLOURS[0]).into()];
    let layout = Layout::auto_from_plots(&plots)
        .with_title(format!("{title}: number of rows (logarithmic)"))
        .with_title_size(16)
        .with_x_label("entries of a row")
        .with_y_axis_min(0.0)
        .with_y_axis_max(most.ceil())
        .with_y_tick_step(1.0)
        .with_y_tick_format(TickFormat::Custom(Arc::new(|height| match height {
            height if height < 0.5 => String::new(),
            height => text::count(10f64.powf(height - 1.0).round() as usize),
        })));
    save(path, plots, layout)
}

/// Maximum number of curves of a performance profile, the number of colours.
pub(crate) const CURVES: usize = COLOURS.len();

/// Draws a performance profile: for each contestant (a format or library) the fraction of matrices on which it takes at most a
/// given multiple of the shortest time. `of` is the number of contestants, of which the best are drawn.
pub(crate) fn profile(
    path: &Path,
    contestants: &[(String, Vec<(f64, f64)>)],
    of: usize,
    most: f64,
) -> Result<(), String> {
    // later lines are drawn above earlier ones, and are thinner and mostly dashed, so that lines which cover
    // each other remain visible
    let lines = contestants.iter().zip(COLOURS).enumerate().map(|(at, ((name, steps), colour))| {
        let style = match at % 4 {
            0 => LineStyle::Solid,
            1 => LineStyle::Dashed,
            2 => LineStyle::DashDot,
            _ => LineStyle::Dotted,
        };
        let line = LinePlot::new().with_data(steps.iter().copied()).with_color(colour).with_line_style(style);
        line.with_stroke_width((5.0 - 0.6 * at as f64).max(1.5)).with_legend(name.as_str()).into()
    });
    let plots: Vec<Plot> = lines.collect();
    let title = match contestants.len() {
        drawn if drawn < of => format!("Performance profile, the best {drawn} of {of}"),
        _ => "Performance profile".to_owned(),
    };
    let title = format!("{title}: share of matrices");
    let layout = Layout::auto_from_plots(&plots)
        .with_title(title)
        .with_title_size(16)
        .with_x_label("time of a product relative to the fastest")
        .with_x_axis_min(1.0)
        .with_x_axis_max(most)
        .with_y_axis_min(0.0)
        .with_y_axis_max(1.0);
    save(path, plots, layout)
}

fn save(path: &Path, plots: Vec<Plot>, layout: Layout) -> Result<(), String> {
    let layout = layout.with_width(760.0).with_height(500.0).with_label_size(14).with_tick_size(12);
    let picture = kuva::render_to_raster(plots, layout, 1.5)?;
    files::save(path, &picture)
}
