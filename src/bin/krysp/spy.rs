//! Plots of the sparsity pattern, as an image and on the terminal.

use crate::text;
use krysp::Csr;
use kuva::backend::raster::RasterBackend;
use kuva::render::color::Color;
use kuva::render::render::{Primitive, Scene, TextAnchor};
use rayon::prelude::*;

/// Length of the longer side of the grid in an image, and the margins. All in points; a point is two pixels.
const LONGER: f64 = 450.0;
const LEFT: f64 = 78.0;
const TOP: f64 = 62.0;
const RIGHT: f64 = 30.0;
const BOTTOM: f64 = 40.0;

/// The number of entries in each cell of a grid over the matrix.
pub(crate) struct Spy {
    rows: usize,
    cols: usize,
    height: usize,
    width: usize,
    counts: Vec<u32>,
}

impl Spy {
    /// A grid whose longer side has `side` cells, but not more than the matrix has rows or columns.
    pub(crate) fn of(a: &Csr<f64>, side: usize) -> Spy {
        let (rows, cols) = (a.rows(), a.cols());
        let longer = rows.max(cols).max(1);
        let cells = |extent: usize| (extent * side).div_ceil(longer).clamp(1, side).min(extent.max(1));
        Spy::with_cells(a, cells(rows), cells(cols))
    }

    /// A grid for an image. It is coarser if fewer than 4 % of the cells of the fine grid have entries, which
    /// would hardly be visible.
    pub(crate) fn for_picture(a: &Csr<f64>) -> Spy {
        const SIDES: [usize; 2] = [450, 300];
        let seen = |spy: &Spy| 25 * spy.counts.iter().filter(|&&count| count > 0).count() >= spy.counts.len();
        let mut spy = Spy::of(a, SIDES[0]);
        for side in &SIDES[1..] {
            if seen(&spy) {
                break;
            }
            spy = Spy::of(a, *side);
        }
        spy
    }

    fn with_cells(a: &Csr<f64>, height: usize, width: usize) -> Spy {
        let (rows, cols) = (a.rows(), a.cols());
        let mut counts = vec![0_u32; height * width];
        counts.par_chunks_mut(width).enumerate().for_each(|(band, counts)| {
            let first = |band: usize| (band * rows).div_ceil(height);
            for row in first(band)..first(band + 1) {
                for &column in a.row_columns(row) {
                    counts[column as usize * width / cols] += 1;
                }
            }
        });
        Spy { rows, cols, height, width, counts }
    }

    /// The darkness of each cell: `ln(1 + entries)` divided by its maximum over all cells.
    fn shades(&self) -> Vec<f64> {
        let most = f64::from(self.counts.iter().copied().max().unwrap_or(0));
        let scale = most.ln_1p();
        self.counts
            .iter()
            .map(|&count| if count == 0 { 0.0 } else { f64::from(count).ln_1p() / scale })
            .collect()
    }

    /// An image as the bytes of a PNG file, with row and column numbers along its edges.
    pub(crate) fn picture(&self, title: &str, below: &str) -> Result<Vec<u8>, String> {
        let longer = self.height.max(self.width) as f64;
        // cells are squares, except that the image of a long thin matrix has at least a visible width
        let extent = |cells: usize| (cells as f64 / longer * LONGER).max(4.0);
        let (width, height) = (extent(self.width), extent(self.height));
        // minimum width, for the titles
        let page = (LEFT + width + RIGHT).max(420.0);
        let left = LEFT + (page - LEFT - width - RIGHT) / 2.0;
        let mut scene = Scene::new(page, TOP + height + BOTTOM);
        scene.background_color = Some("#ffffff".into());
        let text = |x, y, content: &str, size, anchor| Primitive::Text {
            x,
            y,
            content: content.into(),
            size,
            anchor,
            rotate: None,
            bold: false,
            color: Some(Color::from("#222222")),
        };
        scene.add(text(page / 2.0, 24.0, title, 15, TextAnchor::Middle));
        scene.add(text(page / 2.0, TOP + height + 26.0, below, 12, TextAnchor::Middle));
        scene.add(self.cells(left, width, height));
        frame(&mut scene, [left, TOP, width, height]);
        for (at, number) in ticks(self.cols) {
            scene.add(text(left + at * width, TOP - 10.0, &number, 11, TextAnchor::Middle));
            line(&mut scene, [left + at * width, TOP - 6.0, left + at * width, TOP]);
        }
        for (at, number) in ticks(self.rows) {
            scene.add(text(left - 10.0, TOP + at * height + 4.0, &number, 11, TextAnchor::End));
            line(&mut scene, [left - 6.0, TOP + at * height, left, TOP + at * height]);
        }
        RasterBackend::new().with_scale(2.0).render_scene(&scene)
    }

    /// The cells with entries, from light to dark blue.
    fn cells(&self, left: f64, width: f64, height: f64) -> Primitive {
        let (cell_width, cell_height) = (width / self.width as f64, height / self.height as f64);
        let (mut x, mut y, mut fills) = (vec![], vec![], vec![]);
        for (at, &shade) in self.shades().iter().enumerate().filter(|(_, shade)| **shade > 0.0) {
            x.push(left + (at % self.width) as f64 * cell_width);
            y.push(TOP + (at / self.width) as f64 * cell_height);
            let mix = |light: f64, dark: f64| (light + (dark - light) * shade) as u8;
            fills.push(Color::Rgb(mix(190.0, 8.0), mix(212.0, 36.0), mix(238.0, 100.0)));
        }
        let all = |size: f64| vec![size; fills.len()];
        Primitive::RectBatch { x, y, w: all(cell_width), h: all(cell_height), fills }
    }

    /// The matrix as lines of Braille characters. Each character shows four by two cells; ordered dithering sets more dots where
    /// cells have more entries.
    pub(crate) fn in_terminal(a: &Csr<f64>, lines: usize) -> Vec<String> {
        // a Bayer matrix, with which a few dots are evenly spread
        const THRESHOLDS: [[f64; 4]; 4] =
            [[1.0, 9.0, 3.0, 11.0], [13.0, 5.0, 15.0, 7.0], [4.0, 12.0, 2.0, 10.0], [16.0, 8.0, 14.0, 6.0]];
        const DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        let spy = Spy::of(a, 4 * lines);
        let shades = spy.shades();
        let full = spy.counts.iter().filter(|&&count| count > 0).all(|&count| count == 1);
        let dot = |row: usize, col: usize| {
            let shade = if row < spy.height && col < spy.width { shades[row * spy.width + col] } else { 0.0 };
            shade > 0.0 && (full || shade >= THRESHOLDS[row % 4][col % 4] / 17.0)
        };
        let letter = |row: usize, col: usize| {
            let dots = (0..4).flat_map(|i| (0..2).map(move |j| (i, j)));
            let code =
                dots.filter(|&(i, j)| dot(4 * row + i, 2 * col + j)).map(|(i, j)| DOTS[i][j]).sum::<u32>();
            char::from_u32(0x2800 + code).unwrap_or(' ')
        };
        let width = spy.width.div_ceil(2);
        let mut picture = vec![format!("╭{}╮", "─".repeat(width))];
        for row in 0..spy.height.div_ceil(4) {
            let letters: String = (0..width).map(|col| letter(row, col)).collect();
            picture.push(format!("│{letters}│"));
        }
        picture.push(format!("╰{}╯", "─".repeat(width)));
        picture
    }
}

fn line(scene: &mut Scene, [x1, y1, x2, y2]: [f64; 4]) {
    let stroke = Color::from("#666666");
    scene.add(Primitive::Line { x1, y1, x2, y2, stroke, stroke_width: 1.0, stroke_dasharray: None });
}

fn frame(scene: &mut Scene, [x, y, width, height]: [f64; 4]) {
    line(scene, [x, y, x + width, y]);
    line(scene, [x, y + height, x + width, y + height]);
    line(scene, [x, y, x, y + height]);
    line(scene, [x + width, y, x + width, y + height]);
}

/// Labels of the ticks along an edge, which are round numbers, with their positions from 0 to 1.
fn ticks(extent: usize) -> Vec<(f64, String)> {
    let rough = extent as f64 / 5.0;
    let decade = 10f64.powf(rough.max(1.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * decade).find(|step| *step >= rough);
    let step = step.unwrap_or(1.0).max(1.0) as usize;
    (0..=extent / step)
        .map(|k| (k * step) as f64)
        .map(|at| (at / extent.max(1) as f64, text::count(at as usize)))
        .collect()
}
