//! Zip archives as written by NumPy, with stored or deflated members. Archives of any size can be read; those
//! written must have less than 4 GB.

use super::file::{Kind, Numbers, Order, Parsed, read_to_end, take};
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc, bufread::DeflateDecoder};
use std::io::{Read, Write};

const LOCAL: &[u8] = b"PK\x03\x04";
const CENTRAL: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";
const END_64: &[u8] = b"PK\x06\x06";
const LOCATOR_64: &[u8] = b"PK\x06\x07";

/// Size of the end of central directory record, which may be followed by a comment.
const END_SIZE: usize = 22;
/// Placeholder for a number that does not fit in 32 bits.
const ELSEWHERE: u64 = 0xffff_ffff;

const STORED: u64 = 0;
const DEFLATED: u64 = 8;

pub(super) fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(LOCAL)
}

/// A file of the archive.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

/// Reads the number in `width` bytes at a position.
fn number(bytes: &[u8], at: usize, width: usize) -> Parsed<u64> {
    let numbers = Numbers { order: Order::Little, kind: Kind::Unsigned, width };
    let found = bytes.get(at..).and_then(|bytes| numbers.whole(bytes));
    Ok(found.ok_or("the archive is truncated")? as u64)
}

/// The bytes of the archive from a position on.
fn from(bytes: &[u8], at: u64) -> Parsed<&[u8]> {
    usize::try_from(at).ok().and_then(|at| bytes.get(at..)).ok_or_else(|| "the archive is truncated".into())
}

/// Number of members, and position of the central directory.
fn directory(bytes: &[u8]) -> Parsed<(u64, u64)> {
    let last = bytes.len().saturating_sub(END_SIZE);
    let at = (0..=last).rev().take(1 << 16).find(|&at| bytes[at..].starts_with(END));
    let at = at.ok_or("no end record found: the archive is truncated, or not a zip file")?;
    let (count, start) = (number(bytes, at + 10, 2)?, number(bytes, at + 16, 4)?);
    let locator = at.checked_sub(20).map(|at| &bytes[at..]).filter(|bytes| bytes.starts_with(LOCATOR_64));
    let Some(locator) = locator else { return Ok((count, start)) };
    let end = from(bytes, number(locator, 8, 8)?)?;
    if end.starts_with(END_64) { Ok((number(end, 32, 8)?, number(end, 48, 8)?)) } else { Ok((count, start)) }
}

/// Reads all members.
pub(super) fn read(bytes: &[u8]) -> Parsed<Vec<Member>> {
    let (count, start) = directory(bytes)?;
    let mut list = from(bytes, start)?;
    let mut members = vec![];
    for _ in 0..count {
        let entry = list;
        if !take(&mut list, 46, "its list of arrays")?.starts_with(CENTRAL) {
            return Err("the list of its arrays is damaged".into());
        }
        let [name, extra, comment] = [28, 30, 32].map(|at| number(entry, at, 2));
        let name = take(&mut list, name? as usize, "the name of an array")?;
        let extra = take(&mut list, extra? as usize, "its list of arrays")?;
        take(&mut list, comment? as usize, "its list of arrays")?;
        // sizes and position of the member; those that do not fit in 32 bits are in the extra field, in this
        // order
        let mut wide = wide_numbers(extra)?.into_iter();
        let mut size = |at| match number(entry, at, 4)? {
            ELSEWHERE => wide.next().ok_or_else(|| "the size of an array is missing".to_owned()),
            size => Ok(size),
        };
        let (whole, packed, place) = (size(24)?, size(20)?, size(42)?);
        let local = from(bytes, place)?;
        if !local.starts_with(LOCAL) {
            return Err("an array is not at the position given in the directory".into());
        }
        let head = 30 + number(local, 26, 2)? + number(local, 28, 2)?;
        let mut content = from(local, head)?;
        let packed = take(&mut content, usize::try_from(packed).unwrap_or(usize::MAX), "an array")?;
        let name = String::from_utf8_lossy(name).into_owned();
        let content = match number(entry, 10, 2)? {
            STORED => packed.to_vec(),
            DEFLATED => {
                // read up to one byte more than the stated size, to detect a member that is longer
                read_to_end(&mut DeflateDecoder::new(packed).take(whole.saturating_add(1)))
                    .map_err(|error| format!("{name} is damaged ({error})"))?
            }
            method => return Err(format!("{name} is packed by method {method}: save it stored or deflated")),
        };
        let mut sum = Crc::new();
        sum.update(&content);
        if content.len() as u64 != whole || u64::from(sum.sum()) != number(entry, 16, 4)? {
            return Err(format!("{name} is damaged: its checksum is wrong"));
        }
        members.push(Member { name, bytes: content });
    }
    Ok(members)
}

/// The 64-bit numbers in an extra field.
fn wide_numbers(mut extra: &[u8]) -> Parsed<Vec<u64>> {
    while extra.len() >= 4 {
        let (kind, size) = (number(extra, 0, 2)?, number(extra, 2, 2)?);
        take(&mut extra, 4, "its list of arrays")?;
        let field = take(&mut extra, size as usize, "its list of arrays")?;
        if kind == 1 {
            return (0..field.len() / 8).map(|k| number(field, 8 * k, 8)).collect();
        }
    }
    Ok(vec![])
}

/// Writes an archive of these members, deflated.
pub(super) fn write(members: &[Member]) -> Parsed<Vec<u8>> {
    let short = |size: usize| {
        u32::try_from(size).map_err(|_| "the archive would have more than 4 GB: write PETSc's binary form")
    };
    let (mut bytes, mut list) = (vec![], vec![]);
    for Member { name, bytes: content } in members {
        let place = short(bytes.len())?;
        let mut sum = Crc::new();
        sum.update(content);
        let mut packed = DeflateEncoder::new(vec![], Compression::fast());
        let packed = packed.write_all(content).and_then(|()| packed.finish()).map_err(|e| e.to_string())?;
        // version, flags, compression method, time and date (midnight of 1 January 1980)
        let mut about = [20_u16, 0, DEFLATED as u16, 0, 0x21].map(u16::to_le_bytes).concat();
        for number in [sum.sum(), short(packed.len())?, short(content.len())?] {
            about.extend(number.to_le_bytes());
        }
        about.extend((name.len() as u16).to_le_bytes());
        about.extend([0; 2]);
        bytes.extend(LOCAL.iter().chain(&about).copied());
        bytes.extend(name.bytes());
        bytes.extend(packed);
        list.extend(CENTRAL.iter().chain(&[20, 0]).chain(&about).copied());
        // no comment, disk number 0, no attributes
        list.extend([0; 10]);
        list.extend(place.to_le_bytes());
        list.extend(name.bytes());
    }
    let (place, size) = (short(bytes.len())?, short(list.len())?);
    bytes.extend(list);
    bytes.extend(END);
    bytes.extend([0; 4]);
    for _ in 0..2 {
        bytes.extend((members.len() as u16).to_le_bytes());
    }
    bytes.extend(size.to_le_bytes());
    bytes.extend(place.to_le_bytes());
    bytes.extend([0; 2]);
    Ok(bytes)
}
