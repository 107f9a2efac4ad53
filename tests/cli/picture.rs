//! PNG files as arrays of colours, to compare images by their appearance.

use flate2::bufread::ZlibDecoder;
use std::io::Read;
use std::path::Path;

pub(crate) struct Picture {
    width: usize,
    colours: Vec<[u8; 3]>,
}

impl Picture {
    /// Reads a PNG file with 8 bits per channel, with or without an alpha channel, not interlaced.
    pub(crate) fn read(path: &Path) -> Picture {
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"), "{}", path.display());
        let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let (width, height) = (number(16), number(20));
        let channels = match bytes[24..26] {
            [8, 2] => 3,
            [8, 6] => 4,
            ref other => panic!("{other:?}"),
        };
        let (mut packed, mut at) = (vec![], 8);
        while at < bytes.len() {
            let size = number(at);
            if &bytes[at + 4..at + 8] == b"IDAT" {
                packed.extend(&bytes[at + 8..at + 8 + size]);
            }
            at += size + 12;
        }
        let mut raw = vec![];
        ZlibDecoder::new(packed.as_slice()).read_to_end(&mut raw).unwrap();
        let stride = width * channels;
        assert_eq!(raw.len(), height * (stride + 1));
        let mut above = vec![0_u8; stride];
        let mut colours = vec![];
        for line in raw.chunks_mut(stride + 1) {
            let (filter, line) = line.split_first_mut().unwrap();
            for k in 0..stride {
                let left = if k >= channels { line[k - channels] } else { 0 };
                let corner = if k >= channels { above[k - channels] } else { 0 };
                let predicted = match filter {
                    0 => 0,
                    1 => left,
                    2 => above[k],
                    3 => ((u16::from(left) + u16::from(above[k])) / 2) as u8,
                    _ => paeth(left, above[k], corner),
                };
                line[k] = line[k].wrapping_add(predicted);
            }
            colours.extend(line.chunks(channels).map(|colour| [colour[0], colour[1], colour[2]]));
            above.copy_from_slice(line);
        }
        Picture { width, colours }
    }

    /// The mean difference of colours, from 0 to 1; 1 if sizes differ.
    pub(crate) fn difference(&self, other: &Picture) -> f64 {
        if self.width != other.width || self.colours.len() != other.colours.len() {
            return 1.0;
        }
        let pairs = self.colours.as_flattened().iter().zip(other.colours.as_flattened());
        let sum: f64 = pairs.map(|(one, other)| f64::from(one.abs_diff(*other))).sum();
        sum / (255.0 * 3.0 * self.colours.len() as f64)
    }

    /// The number of pixels of a colour to the right of this fraction of the width.
    pub(crate) fn pixels_of(&self, colour: [u8; 3], share: f64) -> usize {
        let first = (share * self.width as f64) as usize;
        self.colours.chunks(self.width).flat_map(|row| &row[first..]).filter(|one| **one == colour).count()
    }

    /// Whether anything is drawn.
    pub(crate) fn has_ink(&self) -> bool {
        self.colours.iter().any(|colour| *colour != self.colours[0])
    }
}

fn paeth(left: u8, above: u8, corner: u8) -> u8 {
    let distance = |one: u8| (i32::from(left) + i32::from(above) - i32::from(corner) - i32::from(one)).abs();
    let [a, b, c] = [left, above, corner].map(distance);
    if a <= b && a <= c {
        left
    } else if b <= c {
        above
    } else {
        corner
    }
}
