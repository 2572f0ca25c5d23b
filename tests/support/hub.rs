//! Hugging Face caches as three generations of `huggingface_hub` leave them, made without that library: clean ones, and
//! ones with the additional files of a used machine, which must not be stored.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::random::Random;
use crate::trees::{hex, safetensors, write};

/// The generation of the library, which decides the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// 0.x: without tag and listings.
    Plain,
    /// 1.22 and later: listings in `trees/`.
    Listed,
    /// 1.32 and later: large files are in a directory that repositories share.
    Shared,
}

/// A token that no service has issued.
pub const TOKEN: &str = "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";

/// The paths in a cache made by [`cache`].
pub struct Cache {
    /// `hub/models--org--tiny`.
    pub repo: PathBuf,
    /// The commit of the branch `main`.
    pub commit: String,
    /// Names in `blobs/`: a git SHA-1, and a SHA-256.
    pub names: [String; 2],
}

/// Makes an HF_HOME with one model and one prepared dataset, and nothing that must be left out.
pub fn cache(home: &Path, seed: u64, generation: Generation) -> Cache {
    let mut random = Random::new(seed);
    let repo = home.join("hub/models--org--tiny");
    let commit = hex(&mut random, 40);
    let snapshot = repo.join("snapshots").join(&commit);
    let config = random.text(600);
    let weights = safetensors(&mut random, 800_000);
    let names = [git_name(&config), sha256(&weights)];
    let [small, large] = &names;
    write(&repo.join("blobs").join(small), &config);
    write(&repo.join("blobs").join(large), &weights);
    fs::create_dir_all(snapshot.join("sub")).unwrap();
    symlink(format!("../../blobs/{small}"), snapshot.join("config.json")).unwrap();
    symlink(format!("../../blobs/{small}"), snapshot.join("poetry.lock")).unwrap();
    let deep = format!("../../../blobs/{large}");
    symlink(deep, snapshot.join("sub/model.safetensors")).unwrap();
    write(&repo.join("refs/main"), commit.as_bytes());
    write(&repo.join("refs/refs/pr/1"), commit.as_bytes());
    let missing = repo.join(".no_exist").join(&commit);
    write(&missing.join("adapter_config.json"), b"");
    if generation != Generation::Plain {
        write(
            &home.join("hub/CACHEDIR.TAG"),
            b"Signature: 8a477f597d28d172789f06886806bc55\n",
        );
        write(
            &repo.join(format!("trees/{commit}.json")),
            listing(&names, config.len(), weights.len()).as_bytes(),
        );
    }
    prepared_dataset(&home.join("datasets"), &mut random);
    write(&home.join("optimum_neuron_custom_cache"), b"org/cache");
    Cache {
        repo,
        commit,
        names,
    }
}

/// Writes a ref of a repository that has no other files in the cache.
pub fn ref_alone(home: &Path, repo: &str) {
    let path = home.join("hub").join(repo).join("refs/main");
    write(&path, "2".repeat(40).as_bytes());
}

/// Copies `clean` to `dirty` and adds what a used machine has: every class of file that must be left out, and modes as
/// a login leaves them. Entries that are in both have the same times.
pub fn clutter(clean: &Path, dirty: &Path, seed: u64, generation: Generation) {
    let random = &mut Random::new(seed);
    run(Command::new("cp").arg("-a").args([clean, dirty]));
    let repo = dirty.join("hub/models--org--tiny");
    if generation == Generation::Shared {
        share(dirty, &repo, random);
    }
    let files = [
        "hub/.locks/models--org--tiny/0123.lock",
        "hub/models--org--tiny/blobs/0123.incomplete",
        "hub/models--org--tiny/blobs/0123.0123abcd.incomplete",
        "hub/models--org--tiny/blobs/tmp_0123",
        "hub/models--org--tiny/blobs/.0123.new",
        "hub/models--org--tiny/refs/main.0123abcd.tmp",
        "datasets/_root_datasets_org___tiny_default_0.0.0_0123.lock",
        "datasets/org___tiny/default/0.0.0/0123_builder.lock",
        "datasets/org___tiny/default/0.0.0/4567.incomplete/part.arrow",
        "datasets/org___tiny/default/0.0.0/4567.incomplete_info.lock",
        "datasets/downloads/0123.json",
        "xet/logs/xet_1.log",
        "xet/https___host/shard-cache/1.mdb",
        "modules/transformers_modules/code.py",
        "assets/lib/x/y",
        "trackio/project.db",
        "accelerate/default_config.yaml",
        ".check_for_update_done",
        ".check_for_skill_update_done",
        ".agent_harnesses.json",
    ];
    for file in files {
        let bytes = random.bytes(if file.ends_with(".lock") { 0 } else { 50 });
        write(&dirty.join(file), &bytes);
    }
    if generation != Generation::Plain {
        write(&repo.join("trees/x.json.tmp"), b"{");
    }
    for secret in ["token", "stored_tokens", ".git-credentials", "sub/.netrc"] {
        write(&dirty.join(secret), TOKEN.as_bytes());
    }
    let log = dirty.join("xet/logs/xet_2.log");
    write(&log, format!("GET /x?token={TOKEN}").as_bytes());
    fs::create_dir_all(clean.join("sub")).unwrap();
    for (path, mode) in [
        ("", 0o700),
        ("token", 0o600),
        ("hub/models--org--tiny", 0o700),
    ] {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(dirty.join(path), mode).unwrap();
    }
    for entry in fs::read_dir(repo.join("blobs")).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_symlink() {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
    }
    same_times(clean, dirty, clean);
}

/// SHA-256 in hex digits, as the hub writes it.
pub fn sha256(bytes: &[u8]) -> String {
    digits(&Sha256::digest(bytes))
}

/// The git blob id of these bytes.
pub fn git_name(bytes: &[u8]) -> String {
    let header = format!("blob {}\0", bytes.len());
    digits(
        &Sha1::new()
            .chain_update(header)
            .chain_update(bytes)
            .finalize(),
    )
}

fn listing([small, large]: &[String; 2], small_len: usize, large_len: usize) -> String {
    format!(
        "{{\"format_version\":1,\"files\":{{\
         \"config.json\":{{\"size\":{small_len},\"blob_id\":\"{small}\"}},\
         \"poetry.lock\":{{\"size\":{small_len},\"blob_id\":\"{small}\"}},\
         \"sub/model.safetensors\":{{\"size\":{large_len},\"blob_id\":\"x\",\"lfs_sha256\":\"{large}\"}}}}}}"
    )
}

fn prepared_dataset(datasets: &Path, random: &mut Random) {
    let dir = datasets
        .join("org___tiny/default/0.0.0")
        .join(hex(random, 40));
    write(&dir.join("dataset_info.json"), b"{}");
    write(&dir.join("tiny-train.arrow"), &random.bytes(30_000));
    write(
        &dir.join("cache-0123456789abcdef_00000_of_00002.arrow"),
        &random.bytes(20_000),
    );
}

/// Moves the large files of `repo` to a shared directory beside it, and leaves links.
fn share(home: &Path, repo: &Path, random: &mut Random) {
    let shared = home.join("hub/blobs");
    write(&shared.join(".huggingface-shared-blobs"), b"1\n");
    for entry in fs::read_dir(repo.join("blobs")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.len() != 64 {
            continue;
        }
        let xet = hex(random, 64);
        let (start, _) = xet.split_at(2);
        let place = shared.join(start).join(&xet);
        write(
            &shared.join(start).join(format!("{xet}.refs")),
            format!("models--org--tiny/blobs/{name}\n").as_bytes(),
        );
        fs::rename(&path, &place).unwrap();
        symlink(format!("../../blobs/{start}/{xet}"), &path).unwrap();
    }
}

/// Gives all entries below `dir`, which is a part of `clean`, and their counterparts in `dirty` the same times, derived
/// from their paths.
fn same_times(clean: &Path, dirty: &Path, dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_symlink() && path.is_dir() {
            same_times(clean, dirty, &path);
        }
        touch(clean, dirty, &path);
    }
    if dir == clean {
        touch(clean, dirty, dir);
    }
}

fn touch(clean: &Path, dirty: &Path, path: &Path) {
    let inside = path.strip_prefix(clean).unwrap();
    let like = dirty.join(inside);
    let seed = inside.as_os_str().len() as u64;
    let secs = 1_000_000_000 + Random::new(seed).below(600_000_000);
    if path.is_symlink() {
        return;
    }
    let date = format!("@{secs}.123456789");
    run(Command::new("touch")
        .args(["-d", &date])
        .arg(path)
        .arg(like));
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
