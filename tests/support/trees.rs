//! Small trees of realistic kinds. Each function writes below a directory and draws arbitrary content from a seed.
//! Fixed trees are in `fixtures/` instead.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::random::Random;

/// Makes all kinds of trees, each in a directory of its name.
pub fn everything(dir: &Path, seed: u64) {
    odd_names(&dir.join("odd-names"), seed);
    kinds(&dir.join("kinds"), seed);
    sizes(&dir.join("sizes"), seed);
    hub_cache(&dir.join("hub"), seed);
    neff_cache(&dir.join("neff"), seed);
    weights(&dir.join("weights"), seed);
    settle_times(dir, seed);
}

/// Names that are not UTF-8, hold newlines, quotes and glob characters, or have 255 bytes.
pub fn odd_names(dir: &Path, seed: u64) {
    let mut random = Random::new(seed);
    let long = [b'l'; 255];
    let names: [&[u8]; 14] = [
        b"\xff\xfe\x80",
        b"caf\xe9.txt",
        "caf\u{e9}.txt".as_bytes(),
        b"two\nlines",
        b"tab\there",
        b" leading and trailing ",
        b"-rf",
        b"quote'\"`$(x)",
        b"*?[a]{b}",
        b"back\\slash",
        b"a:b@3",
        b"...",
        b"\x01\x7f",
        &long,
    ];
    for name in names {
        write(&dir.join(OsStr::from_bytes(name)), &random.bytes(100));
        write(
            &dir.join("below").join(OsStr::from_bytes(name)).join("f"),
            &random.bytes(10),
        );
    }
}

/// Modes, links to existing targets, to missing ones and in a circle, empty directories and files.
pub fn kinds(dir: &Path, seed: u64) {
    let mut random = Random::new(seed);
    for mode in [0o644, 0o755, 0o600, 0o700, 0o444, 0o555] {
        let path = dir.join(format!("mode-{mode:o}"));
        write(&path, &random.text(300));
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    write(&dir.join("empty"), b"");
    fs::create_dir_all(dir.join("empty-dir/inside/empty-dir")).unwrap();
    fs::hard_link(dir.join("mode-644"), dir.join("hard-link")).unwrap();
    let links: [(&str, &[u8]); 6] = [
        ("to-file", b"mode-644"),
        ("to-dir", b"empty-dir/inside"),
        ("dangling", b"no/such/file"),
        ("circle", b"circle"),
        ("absolute", b"/etc/hostname"),
        ("not-utf8", b"\xff\xfe"),
    ];
    for (name, target) in links {
        symlink(OsStr::from_bytes(target), dir.join(name)).unwrap();
    }
}

/// Files of the sizes around which chunking and framing change, including sparse ones.
pub fn sizes(dir: &Path, seed: u64) {
    let mut random = Random::new(seed);
    const KIB: usize = 1024;
    for edge in [1, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB] {
        for size in [edge - 1, edge, edge + 1] {
            write(&dir.join(format!("random-{size}")), &random.bytes(size));
            write(&dir.join(format!("text-{size}")), &random.text(size));
        }
    }
    let sparse = dir.join("sparse");
    write(&sparse, &random.bytes(5000));
    File::options()
        .write(true)
        .open(&sparse)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    File::create(dir.join("all-holes"))
        .unwrap()
        .set_len(3_000_000)
        .unwrap();
    write(&dir.join("zeros"), &vec![0; 700_000]);
}

/// A hub cache as `huggingface_hub` lays it out: content-named files, and snapshots of links to them.
pub fn hub_cache(dir: &Path, seed: u64) {
    crate::hub::cache(dir, seed, crate::hub::Generation::Listed);
    write(&dir.join("hub/version.txt"), b"1");
}

/// A compiler cache: directories named by hash, each with a program, its input and a marker.
pub fn neff_cache(dir: &Path, seed: u64) {
    let mut random = Random::new(seed);
    let shared = random.bytes(40_000);
    for _ in 0..4 {
        let module = dir
            .join("neuronxcc-2.15.128.0")
            .join(format!("MODULE_{}+abc", hex(&mut random, 20)));
        let own = random.bytes(9_000);
        write(
            &module.join("model.neff"),
            &[b"NEFF".as_slice(), &shared, &own].concat(),
        );
        write(&module.join("model.hlo_module.pb"), &random.text(3_000));
        write(
            &module.join("compile_flags.json"),
            b"[\"--model-type=transformer\"]",
        );
        write(&module.join("model.done"), b"");
    }
}

/// A NEFF of this size, in the Neuron SDK's documented format: a header of 1,024 bytes, which states its own length and
/// that of the data after it.
pub fn neff(seed: u64, bytes: usize) -> Vec<u8> {
    const HEADER: usize = 1024;
    let data = Random::new(seed).bytes(bytes - HEADER);
    let fields = [2, HEADER as u64, data.len() as u64].map(u64::to_le_bytes);
    let mut neff = fields.concat();
    neff.resize(HEADER, 0);
    neff.extend(data);
    neff
}

/// Weights, and a fine-tune of them that changes one of four tensors.
pub fn weights(dir: &Path, seed: u64) {
    let mut random = Random::new(seed);
    let base = safetensors(&mut random, 400_000);
    let mut tuned = base.clone();
    let quarter = tuned.len() / 4;
    tuned
        .get_mut(quarter..2 * quarter)
        .unwrap()
        .iter_mut()
        .step_by(2)
        .for_each(|byte| *byte ^= 5);
    write(&dir.join("base/model.safetensors"), &base);
    write(&dir.join("tuned/model.safetensors"), &tuned);
}

/// A safetensors file with one bf16 tensor of `count` values near zero, as in trained models.
pub fn safetensors(random: &mut Random, count: usize) -> Vec<u8> {
    let header = format!(
        "{{\"weight\":{{\"dtype\":\"BF16\",\"shape\":[{count}],\"data_offsets\":[0,{}]}}}}",
        2 * count
    );
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    for _ in 0..count {
        let exponent = 0x3b - random.below(4).min(random.below(8));
        let bits = (random.below(2) << 15) | (exponent << 8) | random.below(256);
        file.extend(bits.to_le_bytes().into_iter().take(2));
    }
    file
}

/// Version `number` of a series, with about `bytes` bytes: consecutive versions share most of them.
pub fn version(dir: &Path, seed: u64, number: u64, bytes: usize) {
    let mut weights = Random::new(seed).bytes(bytes / 2);
    let edit = Random::new(seed ^ number).bytes(weights.len().min(100));
    let places = (weights.len() - edit.len() + 1) as u64;
    let at = usize::try_from((number * 7919) % places).unwrap();
    weights
        .get_mut(at..at + edit.len())
        .unwrap()
        .copy_from_slice(&edit);
    write(&dir.join("weights.bin"), &weights);
    for shard in number..number + 4 {
        let bytes = Random::new(seed ^ (shard << 32)).bytes(bytes / 8);
        write(&dir.join(format!("shards/{shard}")), &bytes);
    }
    let notes = Random::new(seed + number).text(bytes / 20);
    write(&dir.join("notes.txt"), &notes);
    write(&dir.join("empty"), b"");
    write(
        &dir.join("run.sh"),
        format!("#!/bin/sh\necho {number}\n").as_bytes(),
    );
    fs::set_permissions(dir.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(dir.join("logs")).unwrap();
    symlink("notes.txt", dir.join("link")).unwrap();
    File::create(dir.join("hole"))
        .unwrap()
        .set_len(600_000)
        .unwrap();
    settle_times(dir, seed + number);
}

/// Gives every file and directory a different time, including nanoseconds.
pub fn settle_times(dir: &Path, seed: u64) {
    let mut random = Random::new(seed);
    settle(dir, &mut random);
}

fn settle(path: &Path, random: &mut Random) {
    let metadata = fs::symlink_metadata(path).unwrap();
    if metadata.is_symlink() {
        return;
    }
    if metadata.is_dir() {
        let mut below: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        below.sort();
        below.iter().for_each(|path| settle(path, random));
    }
    let age = Duration::new(
        1_000_000_000 + random.below(700_000_000),
        u32::try_from(random.below(1_000_000_000)).unwrap(),
    );
    File::open(path)
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH + age)
        .unwrap();
}

/// Writes a file, and creates its directories.
pub fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

pub(crate) fn hex(random: &mut Random, digits: usize) -> String {
    let bytes = random.bytes(digits.div_ceil(2));
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(digits);
    text
}
