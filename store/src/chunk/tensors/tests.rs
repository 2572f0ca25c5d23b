//! Files of tensors as written by their programs, and files that only begin like them.

use std::ops::Range;

use proptest::prelude::*;

use super::super::{Chunker, Cutter};
use super::*;
use crate::format::ChunkerParams;

const LEAST: u64 = 64;

/// Tensors of these lengths, with different bytes.
fn data(lengths: &[usize]) -> Vec<Vec<u8>> {
    let tensor = |(number, len): (usize, &usize)| {
        let mut bytes = vec![0; *len];
        let seed = u64::try_from(number).unwrap().to_le_bytes();
        blake3::Hasher::new()
            .update(&seed)
            .finalize_xof()
            .fill(&mut bytes);
        bytes
    };
    lengths.iter().enumerate().map(tensor).collect()
}

/// A file, and the ranges of its large tensors.
type Made = (Vec<u8>, Vec<Range<u64>>);

fn place(file: &[u8], tensor: &[u8]) -> Range<u64> {
    let start = file.windows(tensor.len()).position(|bytes| bytes == tensor);
    let start = start.unwrap() as u64;
    start..start + tensor.len() as u64
}

fn made(file: Vec<u8>, tensors: &[Vec<u8>]) -> Made {
    let large = tensors.iter().filter(|tensor| tensor.len() as u64 >= LEAST);
    let places = large.map(|tensor| place(&file, tensor)).collect();
    (file, places)
}

fn safetensors(lengths: &[usize]) -> Made {
    let (tensors, mut header, mut at) = (data(lengths), serde_json::Map::new(), 0);
    header.insert("__metadata__".into(), serde_json::json!({"format": "pt"}));
    for (number, tensor) in tensors.iter().enumerate() {
        let end = at + tensor.len();
        let about =
            serde_json::json!({"dtype": "U8", "shape": [tensor.len()], "data_offsets": [at, end]});
        header.insert(format!("layer.{number}"), about);
        at = end;
    }
    let mut json = serde_json::to_vec(&header).unwrap();
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut file = (json.len() as u64).to_le_bytes().to_vec();
    file.extend(json);
    file.extend(tensors.concat());
    made(file, &tensors)
}

fn gguf(lengths: &[usize], version: u32) -> Made {
    let tensors = data(lengths);
    let mut file = b"GGUF".to_vec();
    let string = |file: &mut Vec<u8>, text: &[u8]| {
        file.extend((text.len() as u64).to_le_bytes());
        file.extend(text);
    };
    file.extend(version.to_le_bytes());
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend(5_u64.to_le_bytes());
    string(&mut file, b"general.architecture");
    file.extend(8_u32.to_le_bytes());
    string(&mut file, b"llama");
    string(&mut file, b"general.alignment");
    file.extend([4_u32, 16].map(u32::to_le_bytes).concat());
    string(&mut file, b"tokenizer.ggml.tokens");
    file.extend([9_u32, 8].map(u32::to_le_bytes).concat());
    file.extend(2_u64.to_le_bytes());
    string(&mut file, b"<s>");
    string(&mut file, b"");
    string(&mut file, b"tokenizer.ggml.scores");
    file.extend([9_u32, 6].map(u32::to_le_bytes).concat());
    file.extend(3_u64.to_le_bytes());
    file.extend([0; 12]);
    string(&mut file, b"llama.block_count");
    file.extend([10_u32, 7, 0].map(u32::to_le_bytes).concat());
    let mut at = 0_usize;
    for (number, tensor) in tensors.iter().enumerate() {
        string(&mut file, format!("blk.{number}").as_bytes());
        file.extend(2_u32.to_le_bytes());
        file.extend([tensor.len() as u64, 1].map(u64::to_le_bytes).concat());
        file.extend(24_u32.to_le_bytes());
        file.extend((at as u64).to_le_bytes());
        at = (at + tensor.len()).next_multiple_of(16);
    }
    let mut padded = Vec::new();
    for tensor in &tensors {
        file.resize(file.len().next_multiple_of(16), 0);
        let mut tensor = tensor.clone();
        tensor.resize(tensor.len().next_multiple_of(16), 0);
        file.extend(&tensor);
        padded.push(tensor);
    }
    made(file, &padded)
}

/// An archive as PyTorch writes it: sizes after the bytes and in the directory, bytes at multiples of 64.
fn pytorch(lengths: &[usize], is_long: bool) -> Made {
    let tensors = data(lengths);
    let names = (0..tensors.len()).map(|number| format!("model/data/{number}"));
    let pickle = ("model/data.pkl".to_owned(), b"a pickle".to_vec());
    let entries: Vec<_> = [pickle]
        .into_iter()
        .chain(names.zip(tensors.clone()))
        .collect();
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in &entries {
        let at = u32::try_from(file.len()).unwrap();
        let (name_len, len) = (
            u16::try_from(name.len()).unwrap(),
            u32::try_from(bytes.len()).unwrap(),
        );
        let begin = (file.len() + 30 + name.len() + 4).next_multiple_of(64);
        let extra = u16::try_from(begin - file.len() - 30 - name.len()).unwrap();
        file.extend(b"PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0");
        file.extend([0; 12]);
        file.extend([name_len, extra].map(u16::to_le_bytes).concat());
        file.extend(name.as_bytes());
        file.extend([*b"FB", (extra - 4).to_le_bytes()].concat());
        file.resize(begin, b'Z');
        file.extend(bytes);
        file.extend(b"PK\x07\x08");
        file.extend([0, len, len].map(u32::to_le_bytes).concat());
        directory.extend(b"PK\x01\x02\0\0\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0");
        let long = if is_long { 28_u16 } else { 0 };
        let shown = |number: u32| if is_long { u32::MAX } else { number };
        directory.extend([shown(len), shown(len)].map(u32::to_le_bytes).concat());
        directory.extend(
            [name_len, long, 0, 0, 0, 0, 0]
                .map(u16::to_le_bytes)
                .concat(),
        );
        directory.extend(shown(at).to_le_bytes());
        directory.extend(name.as_bytes());
        if is_long {
            directory.extend([1_u16, 24].map(u16::to_le_bytes).concat());
            let numbers = [u64::from(len), u64::from(len), u64::from(at)];
            directory.extend(numbers.map(u64::to_le_bytes).concat());
        }
    }
    let (start, count) = (file.len() as u64, entries.len() as u64);
    let len = directory.len() as u64;
    file.extend(directory);
    if is_long {
        let record = file.len() as u64;
        file.extend(b"PK\x06\x06");
        file.extend(44_u64.to_le_bytes());
        file.extend([0; 12]);
        file.extend([count, count, len, start].map(u64::to_le_bytes).concat());
        file.extend(b"PK\x06\x07\0\0\0\0");
        file.extend(record.to_le_bytes());
        file.extend(1_u32.to_le_bytes());
    }
    let count = if is_long {
        u16::MAX
    } else {
        u16::try_from(count).unwrap()
    };
    let short = |number: u64| {
        if is_long {
            u32::MAX
        } else {
            u32::try_from(number).unwrap()
        }
    };
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend([count, count].map(u16::to_le_bytes).concat());
    file.extend([short(len), short(start)].map(u32::to_le_bytes).concat());
    file.extend([0; 2]);
    made(file, &tensors)
}

fn files(lengths: &[usize]) -> Vec<Made> {
    vec![
        safetensors(lengths),
        gguf(lengths, 2),
        gguf(lengths, 3),
        pytorch(lengths, false),
        pytorch(lengths, true),
    ]
}

fn found(file: &[u8]) -> Vec<Range<u64>> {
    let found = tensors(&file, file.len() as u64, LEAST).unwrap();
    found.into_iter().map(|tensor| tensor.place).collect()
}

fn chunker() -> Chunker {
    let params = ChunkerParams {
        min: 64,
        avg: 256,
        max: 1024,
        ..ChunkerParams::default()
    };
    Chunker::new(&params).unwrap()
}

/// The beginnings of chunks, when each read adds at most the next of `reads` bytes.
fn cuts(file: &[u8], reads: &[usize]) -> Vec<u64> {
    let mut cutter = Cutter::new(&chunker(), &file, file.len() as u64).unwrap();
    let (mut starts, mut start, mut filled) = (Vec::new(), 0, 0);
    for read in reads.iter().cycle() {
        filled = (filled + read).min(file.len());
        while let Some(len) = cutter.cut(&file[start..filled], filled == file.len()) {
            assert!(len > 0);
            starts.push(start as u64);
            start += len;
        }
        if filled == file.len() {
            assert_eq!(start, file.len());
            return starts;
        }
    }
    starts
}

/// The cuts of a file without a rule for tensors.
fn plain(file: &[u8]) -> Vec<u64> {
    let params = ChunkerParams {
        tensors: 0,
        ..chunker().0.params.clone()
    };
    let (chunker, mut starts, mut start) = (Chunker::new(&params).unwrap(), Vec::new(), 0);
    let mut cutter = Cutter::new(&chunker, &file, file.len() as u64).unwrap();
    while let Some(len) = cutter.cut(&file[start..], true) {
        starts.push(start as u64);
        start += len;
    }
    starts
}

#[test]
fn tensors_are_found_in_what_programs_write() {
    for (file, places) in files(&[700, 64, 63, 3000, 1, 1024]) {
        assert_eq!(places.len(), 4 + usize::from(file.starts_with(b"GGUF")));
        assert_eq!(found(&file), places);
    }
    let real = include_bytes!("../../../../fixtures/real/tiny.safetensors");
    assert_eq!(found(real).len(), 2);
}

#[test]
fn chunks_begin_and_end_with_tensors() {
    for (file, places) in files(&[700, 3000, 2048, 100]) {
        let starts = cuts(&file, &[usize::MAX / 2]);
        for place in places {
            let inside = starts.iter().filter(|start| place.contains(start));
            let expected: Vec<u64> = (place.start..place.end).step_by(1024).collect();
            assert!(inside.eq(&expected), "{place:?}");
            let is_end = |start: &u64| *start == place.end;
            assert!(place.end == file.len() as u64 || starts.iter().any(is_end));
        }
    }
}

#[test]
fn what_is_cut_short_has_no_tensors() {
    for (file, _) in files(&[700, 64, 300]) {
        // The last tensor of a GGUF file ends at the end of the file, wherever that is.
        let header = match file.starts_with(b"GGUF") {
            true => file.len() - 700 - 64 - 300 - 60,
            false => file.len(),
        };
        for len in 0..header {
            assert_eq!(found(&file[..len]), [], "{len} of {}", file.len());
        }
    }
}

#[test]
fn headers_that_lie_make_files_without_tensors() {
    let file = |header: &str| {
        let len = (header.len() as u64).to_le_bytes();
        [&len[..], header.as_bytes(), &[7; 1000]].concat()
    };
    let good = r#"{"a":{"data_offsets":[0,500]},"b":{"data_offsets":[500,1000],"x":[{}]}}"#;
    assert_eq!(found(&file(good)).len(), 2);
    for bad in [
        r#"{"a":{"data_offsets":[0,500]},"b":{"data_offsets":[499,1000]}}"#,
        r#"{"a":{"data_offsets":[0,1001]}}"#,
        r#"{"a":{"data_offsets":[500,400]}}"#,
        r#"{"a":{"data_offsets":[-1,400]}}"#,
        r#"{"a":{"data_offsets":[0,18446744073709551615]}}"#,
        r#"{"a":{"data_offsets":[0,100,200]}}"#,
        r#"{"a":{"dtype":"F32"}}"#,
        r#"{"a":7}"#,
        r#"{"a":{"data_offsets":[0,500]}} x"#,
        r#"{"a":{"data_offsets":[0,500]}"#,
        r#"{"#,
    ] {
        assert_eq!(found(&file(bad)), [], "{bad}");
    }
    let nested = format!("{{\"a\":{}1{}}}", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(found(&file(&nested)), []);
    let mut long = file(good);
    long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(found(&long), []);
}

#[test]
fn counts_that_lie_cost_neither_time_nor_memory() {
    let (mut file, _) = gguf(&[700], 3);
    for at in [8, 16] {
        let count: [u8; 8] = file[at..at + 8].try_into().unwrap();
        file[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(found(&file), []);
        file[at..at + 8].copy_from_slice(&count);
    }
    assert_eq!(found(&file).len(), 1);
    // 64 nested arrays with huge counts.
    let mut nested = b"GGUF\x03\0\0\0".to_vec();
    nested.extend([1_u64, 1, 0].map(u64::to_le_bytes).concat());
    for _ in 0..64 {
        nested.extend([9_u32, 9].map(u32::to_le_bytes).concat());
        nested.extend(u64::MAX.to_le_bytes());
    }
    assert_eq!(found(&nested), []);
    let (mut zip, _) = pytorch(&[700, 700], true);
    let end = zip.len() - 22 - 20 - 56;
    zip[end + 24..end + 40].copy_from_slice(&[255; 16]);
    assert_eq!(found(&zip), []);
}

#[test]
fn only_archives_of_pytorch_have_tensors() {
    let (file, _) = pytorch(&[700], false);
    let other: Vec<u8> = String::from_utf8_lossy(b"data.pkl")
        .replace("pkl", "txt")
        .into_bytes();
    let at = file
        .windows(8)
        .enumerate()
        .filter(|(_, name)| *name == b"data.pkl");
    let mut renamed = file.clone();
    for (at, _) in at {
        renamed[at..at + 8].copy_from_slice(&other);
    }
    assert_eq!(found(&file).len(), 1);
    assert_eq!(found(&renamed), []);
    // A compressed entry is not a tensor, and an archive of several disks is not supported.
    let entry = file
        .windows(4)
        .rposition(|bytes| bytes == b"PK\x01\x02")
        .unwrap();
    let mut compressed = file.clone();
    compressed[entry + 10] = 8;
    assert_eq!(found(&compressed), []);
    let mut parts = file.clone();
    let end = parts.len() - 22;
    parts[end + 4] = 1;
    assert_eq!(found(&parts), []);
    let commented = [&file[..], b"x"].concat();
    assert_eq!(found(&commented), []);
}

/// A read error must not count as a file without tensors: the next attempt would cut the file differently.
#[test]
fn what_cannot_be_read_is_an_error() {
    struct Failing(Vec<u8>);
    impl ReadAt for Failing {
        fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
            match offset {
                0 if bytes.len() == 16 => self.0.as_slice().read_exact_at(bytes, 0),
                _ => Err(io::Error::other("a bad sector")),
            }
        }
    }
    for (file, _) in files(&[700]) {
        let size = file.len() as u64;
        let error = tensors(&Failing(file), size, LEAST).unwrap_err();
        assert_eq!(error.to_string(), "a bad sector");
    }
}

proptest! {
    #[test]
    fn cuts_do_not_depend_on_how_a_file_is_read(
        lengths in proptest::collection::vec(0_usize..4000, 1..8),
        reads in proptest::collection::vec(1_usize..3000, 1..10),
    ) {
        for (file, places) in files(&lengths) {
            let whole = cuts(&file, &[file.len()]);
            prop_assert_eq!(&whole, &cuts(&file, &reads));
            for place in places {
                prop_assert!(whole.contains(&place.start));
            }
        }
    }

    /// Changes any byte of any file: no panic, every byte is in a chunk, and no chunk exceeds the maximum.
    #[test]
    fn hostile_files_are_cut_like_any_other(
        which in 0_usize..5,
        at in any::<proptest::sample::Index>(),
        value in any::<u8>(),
    ) {
        let (mut file, _) = files(&[700, 64, 300]).swap_remove(which);
        let at = at.index(file.len());
        file[at] = value;
        let starts = cuts(&file, &[file.len()]);
        prop_assert!(starts.windows(2).all(|pair| pair[1] - pair[0] <= 1024));
        if found(&file).is_empty() {
            prop_assert_eq!(starts, plain(&file));
        }
    }
}
