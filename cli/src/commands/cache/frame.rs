//! Finds files that are cut off: compressed ones by decoding them, zstd (RFC 8878) and zlib (RFC 1950), and programs and
//! libraries by their header, which says where their tables end (ELF, System V ABI chapter 4).
//!
//! A file that begins as none of them may be anything, and counts as whole. One that begins with zeros does not: that is what
//! a crash of a host leaves of a file whose bytes it had not written back.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use elf::abi::EI_NIDENT;
use elf::endian::AnyEndian;
use elf::file::{FileHeader, parse_ident};
use flate2::{Decompress, FlushDecompress, Status};
use store::{Content, Reader, Result};
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::cut;

const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const ELF: [u8; 4] = *b"\x7FELF";
/// The length of the header of a 64-bit file; that of a 32-bit one is shorter.
const ELF_HEAD_BYTES: usize = 64;
const BUFFER_BYTES: usize = 128 << 10;

/// Whether a file is cut off or damaged. Returns false for an unreadable file; its reader reports the error.
pub(super) fn is_broken(path: &Path) -> bool {
    let read = cut::open_unseen(path).and_then(|file| read(file).map(|frame| frame.is_broken()));
    read.unwrap_or(false)
}

fn read(mut file: File) -> std::io::Result<Frame> {
    let mut frame = Frame::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    while !frame.is_decided() {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => frame.feed(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(frame)
}

/// The same for a file of a ref.
pub(super) fn is_broken_in(reader: &Reader<'_>, content: &Content) -> Result<bool> {
    let mut frame = Frame::new();
    let memory_bytes = reader.store().host().memory_bytes;
    reader.read_in_order(content, &(0..content.size), memory_bytes, &mut |bytes| {
        frame.feed(bytes);
        Ok(())
    })?;
    Ok(frame.is_broken())
}

/// A file that is decoded piece by piece.
struct Frame {
    state: State,
    /// Where decoded bytes go.
    waste: Vec<u8>,
}

enum State {
    /// These few bytes were seen, which do not tell the format yet.
    Start(Vec<u8>),
    Zstd(Decoder<'static>),
    Zlib(Decompress),
    /// The first bytes, and the number of all.
    Elf(Vec<u8>, u64),
    /// It is decoded to its end, or nothing is known of its format.
    Whole,
    Broken,
}

impl Frame {
    fn new() -> Self {
        Self {
            state: State::Start(Vec::new()),
            waste: vec![0; BUFFER_BYTES],
        }
    }

    /// Whether more bytes change nothing.
    fn is_decided(&self) -> bool {
        matches!(self.state, State::Whole | State::Broken)
    }

    fn is_broken(&self) -> bool {
        match &self.state {
            State::Start(head) => !matches!(started(head), State::Whole),
            state => !matches!(state, State::Whole),
        }
    }

    /// Decodes the next bytes. The first ones decide on the format.
    fn feed(&mut self, bytes: &[u8]) {
        let mut first = Vec::new();
        let mut bytes = bytes;
        if let State::Start(head) = &mut self.state {
            head.extend_from_slice(bytes);
            if head.len() < ZSTD.len() {
                return;
            }
            first.append(head);
            bytes = &first;
            self.state = started(bytes);
        }
        let done = match &mut self.state {
            State::Zstd(decoder) => zstd(decoder, bytes, &mut self.waste),
            State::Zlib(decoder) => zlib(decoder, bytes, &mut self.waste),
            State::Elf(head, seen) => elf(head, seen, bytes),
            _ => return,
        };
        match done {
            Some(true) => self.state = State::Whole,
            Some(false) => {}
            None => self.state = State::Broken,
        }
    }
}

/// The format of a file that begins with these bytes, or consists of them, if they are few.
fn started(begin: &[u8]) -> State {
    let head = begin.get(..ZSTD.len()).unwrap_or(begin);
    if head.iter().all(|byte| *byte == 0) {
        return State::Broken;
    }
    if ZSTD.starts_with(head) {
        return Decoder::new().map_or(State::Broken, State::Zstd);
    }
    if ELF.starts_with(head) {
        return State::Elf(Vec::new(), 0);
    }
    // Deflate with a window of up to 32 KiB, and both bytes as a number are a multiple of 31.
    let is_method = |method: u8| method & 0x0F == 8 && method >> 4 <= 7;
    let is_zlib = match *head {
        [method, flags, ..] => {
            let number = u16::from_be_bytes([method, flags]);
            is_method(method) && number % 31 == 0
        }
        [method] => is_method(method),
        [] => false,
    };
    match is_zlib {
        true => State::Zlib(Decompress::new(true)),
        false => State::Whole,
    }
}

/// Whether the frame ends in these bytes; `None` if they are damaged.
fn zstd(decoder: &mut Decoder<'_>, bytes: &[u8], waste: &mut [u8]) -> Option<bool> {
    let mut input = InBuffer::around(bytes);
    loop {
        let mut output = OutBuffer::around(&mut *waste);
        if decoder.run(&mut input, &mut output).ok()? == 0 {
            return Some(true);
        }
        // A full buffer may hide that there is more to write.
        let is_full = output.pos() == output.capacity();
        if input.pos() == bytes.len() && !is_full {
            return Some(false);
        }
    }
}

/// The same for zlib.
fn zlib(decoder: &mut Decompress, bytes: &[u8], waste: &mut [u8]) -> Option<bool> {
    let mut rest = bytes;
    loop {
        let before = (decoder.total_in(), decoder.total_out());
        let status = decoder
            .decompress(rest, waste, FlushDecompress::None)
            .ok()?;
        if status == Status::StreamEnd {
            return Some(true);
        }
        let taken = decoder.total_in() - before.0;
        rest = rest.get(usize::try_from(taken).ok()?..)?;
        let made = decoder.total_out() - before.1;
        let is_full = made == waste.len() as u64;
        if rest.is_empty() && !is_full {
            return Some(false);
        }
        if taken == 0 && made == 0 {
            return None;
        }
    }
}

/// Whether the file reaches to the end of its last table; `None` if its header is none. Linkers write the table of sections
/// last, or that of segments.
fn elf(head: &mut Vec<u8>, seen: &mut u64, bytes: &[u8]) -> Option<bool> {
    *seen += bytes.len() as u64;
    let rest = ELF_HEAD_BYTES - head.len();
    head.extend_from_slice(bytes.get(..rest).unwrap_or(bytes));
    let Some((ident, tail)) = head.split_at_checked(EI_NIDENT) else {
        return Some(false);
    };
    if head.len() < ELF_HEAD_BYTES {
        return Some(false);
    }
    let parsed =
        parse_ident::<AnyEndian>(ident).and_then(|ident| FileHeader::parse_tail(ident, tail));
    let header = parsed.ok()?;
    let end = |at: u64, size: u16, count: u16| at.checked_add(u64::from(size) * u64::from(count));
    // With very many sections, the first one of the table has their number.
    let sections = header.e_shnum.max(u16::from(header.e_shoff > 0));
    let sections = end(header.e_shoff, header.e_shentsize, sections)?;
    let segments = end(header.e_phoff, header.e_phentsize, header.e_phnum)?;
    Some(*seen >= sections.max(segments))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn zlibbed(bytes: &[u8]) -> Vec<u8> {
        let mut made = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        made.write_all(bytes).unwrap();
        made.finish().unwrap()
    }

    fn is_broken_by(bytes: &[u8], step: usize) -> bool {
        let mut frame = Frame::new();
        bytes.chunks(step).for_each(|piece| frame.feed(piece));
        frame.is_broken()
    }

    /// Text that compresses well, and bytes that do not.
    fn texts() -> [Vec<u8>; 3] {
        let mixed = |length: u32| -> Vec<u8> {
            let words = (0..length).map(|at| at.wrapping_mul(2_654_435_761) >> (at % 32));
            words.flat_map(u32::to_le_bytes).collect()
        };
        [vec![7; 3_000_000], mixed(100_000), mixed(3)]
    }

    #[test]
    fn a_frame_is_whole_only_to_its_last_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for text in texts() {
            for frame in [zstd::bulk::compress(&text, 3).unwrap(), zlibbed(&text)] {
                let ends = [
                    1,
                    2,
                    3,
                    4,
                    5,
                    9,
                    frame.len() / 3,
                    frame.len() / 2,
                    frame.len() - 4,
                ];
                for step in [7, 4096, usize::MAX] {
                    assert!(!is_broken_by(&frame, step), "{step}");
                    for end in ends.into_iter().chain([frame.len() - 1]) {
                        let is_broken = is_broken_by(&frame[..end], step);
                        assert!(is_broken, "{end} of {}, {step}", frame.len());
                    }
                    // Some programs write more behind it.
                    assert!(!is_broken_by(&[&frame[..], b"more"].concat(), step));
                }
                for (bytes, is) in [(&frame[..], false), (&frame[..frame.len() - 1], true)] {
                    std::fs::write(&path, bytes).unwrap();
                    assert_eq!(is_broken(&path), is);
                }
            }
        }
        // Zeros in the middle, as of a page that was never written.
        let mut frame = zlibbed(&texts()[1]);
        let middle = frame.len() / 2;
        frame[middle..middle + 4096].fill(0);
        assert!(is_broken_by(&frame, 4096));
        assert!(!is_broken(&dir.path().join("none")));
    }

    #[test]
    fn what_is_no_frame_counts_as_whole_and_zeros_do_not() {
        for whole in [
            &b"code"[..],
            b"c",
            b"xy",
            b"(code",
            b"\x7FELG",
            &[0x78, 0x9D, 1],
        ] {
            for step in [1, 1 << 10] {
                assert!(!is_broken_by(whole, step), "{whole:?}, {step}");
            }
        }
        for broken in [
            &[][..],
            &[0; 100],
            &ZSTD[..2],
            &ZSTD,
            &ZSTD[..1],
            &[0x78],
            &[0x78, 0x9C],
            &ELF[..1],
            &ELF,
            &[&ELF[..], &[7; 100]].concat(),
        ] {
            for step in [1, 1 << 10] {
                assert!(is_broken_by(broken, step), "{broken:?}, {step}");
            }
        }
    }

    /// This program is one.
    #[test]
    fn a_library_is_whole_only_to_the_end_of_its_tables() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for step in [4096, usize::MAX] {
            assert!(!is_broken_by(&program, step), "{step}");
        }
        // All of it in such small pieces would take long.
        let (start, rest) = program.split_at(1 << 16);
        let mut frame = Frame::new();
        let pieces = start.chunks(7).chain(rest.chunks(4096));
        pieces.for_each(|piece| frame.feed(piece));
        assert!(!frame.is_broken());
        for end in [4, 20, 63, 64, 1000, program.len() / 2, program.len() - 1] {
            assert!(is_broken_by(&program[..end], 4096), "{end}");
        }
    }
}
