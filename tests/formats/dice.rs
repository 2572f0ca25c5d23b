//! The fuzz targets without a fuzzer: each seed unchanged, and thousands of random changes to seeds.
//!
//! The seeds are valid objects, the malformed ones of `fixtures/malformed`, and `seeds.rs`. The random numbers are the
//! same in every run, so a failure is reproducible; its input is then in `tests/fuzz/artifacts`. Changes ignore
//! coverage: `tests/run fuzz` keeps inputs that reach new code, and so finds what needs several changes in a row.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Random, effort};

use crate::{fuzz, malformed, seeds};

/// Number of changed inputs for a target, in the ordinary and in the slow suite.
const THROWS: u64 = 10_000;
const THROWS_SLOW: u64 = 1_000_000;
/// More address space than any input needs: a target that allocates what an input announces fails here.
const MEMORY_MAX: u64 = 2 << 30;
const INPUT_BYTES_MAX: usize = 1 << 16;

/// A target returns whether it accepted an input.
type Target = fn(&[u8]) -> bool;

macro_rules! targets {
    ($($name:ident)*) => {
        const TARGETS: &[&str] = &[$(stringify!($name)),*];

        $(
            #[test]
            fn $name() {
                throw(stringify!($name), fuzz::$name);
            }
        )*
    };
}

targets! {
    bundle checkpoint format frame hub_body hub_commit hub_listing hub_path kept list log name pack page_path range
    s3_request segment times tree
}

#[test]
fn every_target_is_thrown_at() {
    let mut found: Vec<String> = fs::read_dir(fuzz_dir().join("targets"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    found.sort();
    assert_eq!(found, TARGETS);
}

fn throw(name: &str, target: Target) {
    let before = getrlimit(Resource::As);
    let current = Some(MEMORY_MAX);
    setrlimit(Resource::As, Rlimit { current, ..before }).unwrap();
    let good = seeds::good(name);
    for seed in &good {
        assert!(tried(name, target, seed), "{name}: {}", seed.escape_ascii());
    }
    let broken = seeds::malformed_kinds(name).iter();
    let broken = broken.flat_map(|kind| malformed::files(kind));
    let broken: Vec<Vec<u8>> = broken.map(|path| fs::read(path).unwrap()).collect();
    for seed in &broken {
        tried(name, target, seed);
    }
    let mut dice = Random::new(1);
    let (mut accepted, throws) = (0, effort(THROWS, THROWS_SLOW));
    for _ in 0..throws {
        let input = changed(&good, &broken, &mut dice);
        accepted += u64::from(tried(name, target, &input));
    }
    setrlimit(Resource::As, before).unwrap();
    println!("{name}: {accepted} of {throws} were accepted");
    // Otherwise nothing after the first check was reached.
    assert!(accepted > 20, "{name}: {accepted} of {throws}");
}

/// Whether the target accepted the input. The input is kept if the target panics.
fn tried(name: &str, target: Target, input: &[u8]) -> bool {
    let kept = Kept { name, input };
    let accepted = target(input);
    drop(kept);
    accepted
}

struct Kept<'k> {
    name: &'k str,
    input: &'k [u8],
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let dir = fuzz_dir().join("artifacts").join(self.name);
            let path = dir.join("dice");
            let written = fs::create_dir_all(dir).and_then(|()| fs::write(&path, self.input));
            eprintln!("{}: its input: {written:?}", path.display());
        }
    }
}

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// A seed with up to eight changes, mostly one or two. Every fourth begins with a malformed seed.
fn changed(good: &[Vec<u8>], broken: &[Vec<u8>], dice: &mut Random) -> Vec<u8> {
    let begins_broken = !broken.is_empty() && dice.below(4) == 0;
    let mut bytes = pick(if begins_broken { broken } else { good }, dice).clone();
    let other = pick(good, dice);
    for _ in 0..1 << dice.below(4).saturating_sub(dice.below(3)) {
        change(&mut bytes, other, dice);
        bytes.truncate(INPUT_BYTES_MAX);
    }
    bytes
}

/// One change: of a bit, a byte, a number, or a piece of this seed or another one.
fn change(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Random) {
    const BYTES: &[u8] = b"\0\x01\x7f\x80\xff \n\r\t/\"'%.,:;&=-+0{}[]\\";
    match dice.below(10) {
        0 | 1 => on_byte(bytes, dice, |byte, dice| *byte ^= 1 << dice.below(8)),
        2 => on_byte(bytes, dice, |byte, dice| *byte = *pick(BYTES, dice)),
        3 => on_byte(bytes, dice, |byte, dice| {
            *byte = byte.wrapping_add(pick(&[1, 0xff, 16, 0xf0], dice).to_owned());
        }),
        4 => number(bytes, dice),
        5 => decimal(bytes, dice),
        6 => {
            let piece = piece(bytes.len(), dice);
            bytes.drain(piece);
        }
        7 => {
            let copy = bytes.get(piece(bytes.len(), dice)).unwrap().to_vec();
            insert(bytes, &copy, dice);
        }
        8 => {
            let copy = other.get(piece(other.len(), dice)).unwrap();
            insert(bytes, copy, dice);
        }
        _ => {
            bytes.truncate(place(bytes.len(), dice));
            bytes.extend_from_slice(other.get(place(other.len(), dice)..).unwrap());
        }
    }
}

fn on_byte(bytes: &mut [u8], dice: &mut Random, mut action: impl FnMut(&mut u8, &mut Random)) {
    if !bytes.is_empty() {
        let at = place(bytes.len() - 1, dice);
        action(bytes.get_mut(at).unwrap(), dice);
    }
}

/// Replaces two, four or eight bytes by a boundary value.
fn number(bytes: &mut [u8], dice: &mut Random) {
    let len = bytes.len() as u64;
    let value = *pick(
        &[
            0,
            1,
            len,
            len.wrapping_sub(1),
            u64::MAX,
            u64::MAX >> 1,
            1 << 31,
            1 << 15,
        ],
        dice,
    );
    let width = *pick(&[2, 4, 8], dice);
    let at = place(bytes.len().saturating_sub(width), dice);
    if let Some(room) = bytes.get_mut(at..at + width) {
        room.copy_from_slice(value.to_le_bytes().get(..width).unwrap());
    }
}

/// Replaces a decimal number by another one.
fn decimal(bytes: &mut Vec<u8>, dice: &mut Random) {
    const NUMBERS: [&str; 9] = [
        "",
        "0",
        "1",
        "00",
        "-1",
        "1e400",
        "4294967296",
        "18446744073709551615",
        "18446744073709551616",
    ];
    let from = place(bytes.len(), dice);
    let rest = bytes.get(from..).unwrap();
    let Some(begin) = rest.iter().position(u8::is_ascii_digit) else {
        return;
    };
    let digits = rest.iter().skip(begin);
    let len = digits.take_while(|byte| byte.is_ascii_digit()).count();
    let begin = from + begin;
    let number = pick(&NUMBERS, dice).bytes();
    bytes.splice(begin..begin + len, number);
}

fn insert(bytes: &mut Vec<u8>, piece: &[u8], dice: &mut Random) {
    let at = place(bytes.len(), dice);
    bytes.splice(at..at, piece.iter().copied());
}

/// A random range in this length, mostly short.
fn piece(len: usize, dice: &mut Random) -> std::ops::Range<usize> {
    let begin = place(len, dice);
    let most = (len - begin).min(1 << dice.below(9));
    begin..begin + place(most, dice)
}

/// A random position from 0 to `len`, both included.
fn place(len: usize, dice: &mut Random) -> usize {
    usize::try_from(dice.below(len as u64 + 1)).unwrap()
}

fn pick<'p, T>(of: &'p [T], dice: &mut Random) -> &'p T {
    of.get(place(of.len() - 1, dice)).unwrap()
}
