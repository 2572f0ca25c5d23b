//! Input that is larger than memory or seems so, and files with restricted access.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use support::{Finished, TestEnvironment, effort, environment};

const REF: &str = "project/large/data";
/// The command's default budget, plus what the program, its threads and its allocator need.
const PEAK_BYTES_MAX: u64 = (128 + 64) << 20;
/// Runs a command and records its peak memory.
const PEAK: &str = "import resource, subprocess, sys\n\
    code = subprocess.run(sys.argv[2:]).returncode\n\
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss\n\
    open(sys.argv[1], 'w').write(str(peak * 1024))\n\
    sys.exit(code)";

/// Runs the command, asserts that it succeeds, and returns its peak resident bytes.
fn peak(env: &TestEnvironment, arguments: &[&str]) -> u64 {
    let store = env.command(arguments);
    let note = env.path("peak");
    let mut command = Command::new("python3");
    command.args(["-c", PEAK]).arg(&note);
    command.arg(store.get_program()).args(store.get_args());
    command
        .current_dir(env.root())
        .env("HOME", env.path("home"));
    let finished: Finished = command.output().unwrap().into();
    assert_eq!(finished.code, Some(0), "{finished}");
    let peak = fs::read_to_string(note).unwrap().parse().unwrap();
    println!("{arguments:?}: {} MiB", peak >> 20);
    peak
}

fn assert_within_budget(peak: u64, what: &str) {
    assert!(peak < PEAK_BYTES_MAX, "{what}: {} MiB", peak >> 20);
}

#[test]
fn memory_follows_the_budget_and_not_the_file() {
    let env = environment!();
    let mut large = File::create(env.path("large")).unwrap();
    let mut noise = blake3::Hasher::new().finalize_xof();
    let mut bytes = vec![0; 16 << 20];
    for _ in 0..effort(24, 160) {
        noise.fill(&mut bytes);
        large.write_all(&bytes).unwrap();
    }
    drop(bytes);
    assert_within_budget(peak(&env, &["put", "large", REF]), "put");
    assert_within_budget(peak(&env, &["get", REF, "out"]), "get");
    same_bytes(&env.path("large"), &env.path("out"));
}

#[test]
fn memory_follows_the_budget_and_not_the_number_of_files() {
    let env = environment!();
    for number in 0..effort(10_000, 300_000) {
        let dir = env.path(format!("many/{}", number / 1000));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(number.to_string()), number.to_string()).unwrap();
    }
    assert_within_budget(peak(&env, &["put", "many", REF]), "put");
    assert_within_budget(peak(&env, &["put", "many", REF]), "put again");
    assert_within_budget(peak(&env, &["get", REF, "out"]), "get");
}

/// Holes take almost no space, in the store and in the copy.
#[test]
fn a_sparse_file_of_terabytes() {
    let env = environment!();
    // A list of its chunks would take 270 MB.
    let size = effort(4_u64, 6) << 40;
    let file = File::create(env.path("sparse")).unwrap();
    file.set_len(size).unwrap();
    let places = [0, 5_000_000_001, size / 2, size - 9];
    for place in places {
        file.write_all_at(b"something", place).unwrap();
    }
    assert_within_budget(peak(&env, &["put", "sparse", REF]), "put");
    let stored = bytes_below(&env.path("home/.local/share/store"));
    assert!(stored < 4 << 20, "{stored} bytes in the store");
    assert_within_budget(peak(&env, &["get", REF, "out"]), "get");
    let out = File::open(env.path("out")).unwrap();
    let metadata = out.metadata().unwrap();
    assert_eq!(metadata.len(), size);
    assert!(metadata.blocks() < 8192, "{} blocks", metadata.blocks());
    for place in places {
        let mut found = [0; 9];
        out.read_exact_at(&mut found, place).unwrap();
        assert_eq!(&found, b"something", "at {place}");
    }
    let mut between = [1; 4096];
    out.read_exact_at(&mut between, size / 3).unwrap();
    assert_eq!(between, [0; 4096]);
}

/// Modes do not restrict root, so the command runs as another user.
#[test]
fn a_file_that_may_not_be_read() {
    let env = environment!();
    let program = env.path("program");
    fs::copy(env.command([""; 0]).get_program(), &program).unwrap();
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    env.write("in/secret", "s");
    env.write("in/open", "o");
    fs::create_dir_all(env.path("in/closed")).unwrap();
    fs::create_dir(env.path("home")).unwrap();
    mode(&env.path("in/secret"), 0o000);
    mode(&env.path("in/closed"), 0o000);
    mode(&env.path("home"), 0o777);
    mode(&env.root(), 0o755);
    let nobody = |arguments: &[&str]| -> Finished {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&program).args(arguments);
        command
            .current_dir(env.root())
            .env("HOME", env.path("home"));
        command.output().unwrap().into()
    };
    let refused = nobody(&["put", "in", REF]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(
        refused.stderr.contains("in/closed") || refused.stderr.contains("in/secret"),
        "{refused}"
    );
    assert!(refused.stderr.contains("Permission denied"), "{refused}");
    assert_eq!(nobody(&["history", REF]).code, Some(3));
    let skipped = nobody(&["put", "in", REF, "--skip-unreadable"]);
    assert_eq!(skipped.code, Some(6), "{skipped}");
    assert!(
        skipped.stderr.contains("in/closed") && skipped.stderr.contains("in/secret"),
        "{skipped}"
    );
    assert_eq!(nobody(&["get", REF, "home/out"]).code, Some(0));
    assert_eq!(fs::read(env.path("home/out/open")).unwrap(), b"o");
    assert!(!env.path("home/out/secret").exists());
}

fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.metadata().unwrap() {
            metadata if metadata.is_dir() => bytes_below(&entry.path()),
            metadata => metadata.len(),
        })
        .sum()
}

fn same_bytes(left: &Path, right: &Path) {
    assert!(
        Command::new("cmp")
            .arg(left)
            .arg(right)
            .status()
            .unwrap()
            .success()
    );
}
