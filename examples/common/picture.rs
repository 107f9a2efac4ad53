//! The temperatures of the heat sink as a VTK file, for ParaView, and as an image.

use super::{HeatSink, cross, dot, minus};
use flate2::{Compression, Crc, write::ZlibEncoder};
use std::io::{self, Write};
use std::path::PathBuf;

/// Pixels of the image, and the factor of oversampling along each side, to smooth edges.
const WIDTH: usize = 900;
const HEIGHT: usize = 640;
const FINER: usize = 2;

/// Colours from cold to hot.
const COLOURS: [[f64; 3]; 6] = [
    [30.0, 20.0, 80.0],
    [95.0, 25.0, 130.0],
    [180.0, 45.0, 105.0],
    [235.0, 95.0, 50.0],
    [250.0, 175.0, 60.0],
    [252.0, 250.0, 185.0],
];

impl HeatSink {
    /// Writes `NAME.vtk` and `NAME.png` to the folder `target`.
    pub(crate) fn save(&self, name: &str, temperatures: &[f64]) -> io::Result<[PathBuf; 2]> {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target"));
        std::fs::create_dir_all(&folder)?;
        let [vtk, png] = ["vtk", "png"].map(|ending| folder.join(format!("{name}.{ending}")));
        std::fs::write(&vtk, self.vtk(temperatures))?;
        std::fs::write(&png, self.picture(temperatures)?)?;
        Ok([vtk, png])
    }

    /// The mesh and a temperature at each point, in VTK's legacy format, whose numbers are big-endian.
    fn vtk(&self, temperatures: &[f64]) -> Vec<u8> {
        let (points, cells) = (self.points.len(), self.elements());
        let mut file = format!("# vtk DataFile Version 3.0\nheat sink\nBINARY\nDATASET UNSTRUCTURED_GRID\nPOINTS {points} double\n")
            .into_bytes();
        file.extend(self.points.as_flattened().iter().flat_map(|x| x.to_be_bytes()));
        file.extend(format!("\nCELLS {cells} {}\n", 5 * cells).bytes());
        for (_, nodes) in self.tetrahedra() {
            file.extend([4, nodes[0], nodes[1], nodes[2], nodes[3]].into_iter().flat_map(u32::to_be_bytes));
        }
        file.extend(format!("\nCELL_TYPES {cells}\n").bytes());
        // cell type 10 is a tetrahedron
        file.extend((0..cells).flat_map(|_| 10_u32.to_be_bytes()));
        file.extend(
            format!("\nPOINT_DATA {points}\nSCALARS temperature double 1\nLOOKUP_TABLE default\n").bytes(),
        );
        file.extend(temperatures.iter().flat_map(|t| t.to_be_bytes()));
        file
    }

    /// The surface seen obliquely from above as a PNG file, brighter where it is hotter.
    fn picture(&self, temperatures: &[f64]) -> io::Result<Vec<u8>> {
        let (width, height) = (WIDTH * FINER, HEIGHT * FINER);
        let (turn, tilt) = (0.6_f64, 0.95_f64);
        // directions to the right, up, and towards the viewer
        let view = |[x, y, z]: [f64; 3]| {
            let (right, away) = (x * turn.cos() - y * turn.sin(), x * turn.sin() + y * turn.cos());
            [right, z * tilt.sin() + away * tilt.cos(), z * tilt.cos() - away * tilt.sin()]
        };
        let seen: Vec<[f64; 3]> = self.points.iter().map(|&point| view(point)).collect();
        let range = |axis: usize| {
            let along = || seen.iter().map(move |point| point[axis]);
            (along().fold(f64::MAX, f64::min), along().fold(f64::MIN, f64::max))
        };
        let ((left, right), (low, high)) = (range(0), range(1));
        let scale = 0.94 * (width as f64 / (right - left)).min(height as f64 / (high - low));
        let pixel = |[x, y, depth]: [f64; 3]| {
            let across = width as f64 / 2.0 + scale * (x - (left + right) / 2.0);
            [across, height as f64 / 2.0 - scale * (y - (low + high) / 2.0), depth]
        };
        let (coldest, hottest) = (
            temperatures.iter().fold(f64::MAX, |a, &b| a.min(b)),
            temperatures.iter().fold(f64::MIN, |a, &b| a.max(b)),
        );
        let mut colours = vec![[255.0; 3]; width * height];
        let mut nearest = vec![f64::MIN; width * height];
        for nodes in self.bottom.iter().chain(&self.cooled) {
            let [a, b, c] = nodes.map(|node| pixel(seen[node as usize]));
            let heat =
                nodes.map(|node| (temperatures[node as usize] - coldest) / (hottest - coldest).max(1e-300));
            let normal = nodes.map(|node| self.points[node as usize]);
            let normal = cross(minus(normal[1], normal[0]), minus(normal[2], normal[0]));
            // faces that point upwards are lit, vertical ones are in the shade
            let steep = [0.72, 0.86, 1.0].iter().zip(normal).map(|(light, n)| light * n * n).sum::<f64>();
            let light = steep / dot(normal, normal);
            let area = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
            let bounds = |axis: usize, most: usize| {
                let (least, last) = (a[axis].min(b[axis]).min(c[axis]), a[axis].max(b[axis]).max(c[axis]));
                (least.max(0.0) as usize)..=(last.max(0.0) as usize).min(most - 1)
            };
            for y in bounds(1, height) {
                for x in bounds(0, width) {
                    let (px, py) = (x as f64 + 0.5, y as f64 + 0.5);
                    let share = |p: [f64; 3], q: [f64; 3]| {
                        ((p[0] - px) * (q[1] - py) - (p[1] - py) * (q[0] - px)) / area
                    };
                    let shares = [share(b, c), share(c, a), share(a, b)];
                    if shares.iter().any(|&share| share.is_nan() || share < -1e-9) {
                        continue;
                    }
                    let depth = dot(shares, [a[2], b[2], c[2]]);
                    if depth > nearest[y * width + x] {
                        nearest[y * width + x] = depth;
                        colours[y * width + x] = colour(dot(shares, heat)).map(|channel| light * channel);
                    }
                }
            }
        }
        png(&smoothed(&colours, width))
    }
}

/// The colour of a temperature from 0, the coldest, to 1, the hottest.
fn colour(heat: f64) -> [f64; 3] {
    let place = heat.clamp(0.0, 1.0) * (COLOURS.len() - 1) as f64;
    let below = (place as usize).min(COLOURS.len() - 2);
    let share = place - below as f64;
    [0, 1, 2].map(|channel| COLOURS[below][channel] * (1.0 - share) + COLOURS[below + 1][channel] * share)
}

/// The mean of each square of finer pixels.
fn smoothed(colours: &[[f64; 3]], width: usize) -> Vec<u8> {
    let mut pixels = vec![];
    for (y, x) in (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| (y, x))) {
        let finer = (0..FINER).flat_map(|i| (0..FINER).map(move |j| (y * FINER + i) * width + x * FINER + j));
        let sums =
            finer.fold([0.0; 3], |sums, at| [0, 1, 2].map(|channel| sums[channel] + colours[at][channel]));
        pixels.extend(sums.map(|sum| (sum / (FINER * FINER) as f64) as u8));
    }
    pixels
}

/// A PNG file of these pixels.
fn png(pixels: &[u8]) -> io::Result<Vec<u8>> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8], content: &[u8]| {
        let mut sum = Crc::new();
        sum.update(kind);
        sum.update(content);
        file.extend((content.len() as u32).to_be_bytes());
        file.extend(kind.iter().chain(content));
        file.extend(sum.sum().to_be_bytes());
    };
    // 8 bits per channel, red, green and blue
    let size = [WIDTH as u32, HEIGHT as u32].map(u32::to_be_bytes).concat();
    chunk(b"IHDR", &[&size[..], &[8, 2, 0, 0, 0]].concat());
    let mut packed = ZlibEncoder::new(vec![], Compression::default());
    for line in pixels.chunks(3 * WIDTH) {
        packed.write_all(&[0])?;
        packed.write_all(line)?;
    }
    chunk(b"IDAT", &packed.finish()?);
    chunk(b"IEND", &[]);
    Ok(file)
}
