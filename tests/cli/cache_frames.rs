//! Compile caches whose files tell by their bytes alone that they are whole: compressed ones of JAX, groups of Triton,
//! libraries of Inductor.

use std::fs;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use support::{TestEnvironment, environment};

const ZLIB: &[u8] = include_bytes!("../../fixtures/real/jax-zlib");
const ZSTD: &[u8] = include_bytes!("../../fixtures/real/jax-zstd");
const REF: &str = "project/llama/compiled";

/// Runs `store cache` for a profile. Returns its `--json`.
fn cache(env: &TestEnvironment, profile: &str, words: &[&str]) -> Value {
    let all = ["cache", "--profile", profile];
    let said = env.ok(all.iter().chain(words).chain(&["--json"]));
    serde_json::from_str(&said).unwrap()
}

fn key(name: &str) -> String {
    format!("jit_f-{}-cache", name.repeat(32))
}

fn counts<const N: usize>(told: &Value, fields: [&str; N]) -> [u64; N] {
    fields.map(|field| match &told[field] {
        Value::Array(all) => all.len() as u64,
        one => one.as_u64().unwrap_or_else(|| panic!("{field}: {told}")),
    })
}

#[test]
fn a_compressed_file_that_is_cut_off_is_neither_pushed_nor_pulled() {
    let env = environment!();
    let xla = |words: &[&str]| cache(&env, "xla", words);
    env.write(format!("here/{}", key("aa")), ZLIB);
    env.write(format!("here/{}", key("bb")), ZSTD);
    env.write(format!("here/{}", key("cc")), &ZLIB[..ZLIB.len() - 1]);
    env.write(format!("here/{}", key("dd")), &ZSTD[..ZSTD.len() / 2]);
    env.write(format!("here/{}", key("ee")), [0; 2000]);
    env.write(format!("here/{}", key("ff")), &ZLIB[..1]);
    let pushed = xla(&["push", "here", REF]);
    assert_eq!(counts(&pushed, ["pushed", "refused"]), [2, 4], "{pushed}");
    let status = xla(&["status", "here"]);
    assert_eq!(
        counts(&status, ["complete", "incomplete"]),
        [2, 4],
        "{status}"
    );
    // The first whole one of a key is stored.
    env.write(format!("there/{}", key("cc")), ZLIB);
    let pushed = xla(&["push", "there", REF]);
    assert_eq!(counts(&pushed, ["pushed", "refused"]), [1, 0], "{pushed}");
    // It replaces the one that is cut off here. Those that the ref does not have are not decoded by a pull.
    let pulled = xla(&["pull", "here", REF]);
    assert_eq!(
        counts(&pulled, ["hits", "pulled", "repaired"]),
        [5, 1, 1],
        "{pulled}"
    );
    assert_eq!(fs::read(env.path("here").join(key("cc"))).unwrap(), ZLIB);
    let pulled = xla(&["pull", "here", REF]);
    assert_eq!(counts(&pulled, ["hits", "pulled"]), [6, 0], "{pulled}");
    // What was cut off long ago is removed.
    std::thread::sleep(Duration::from_millis(1100));
    let cleaned = xla(&["clean", "here", "--stale", "1s"]);
    assert_eq!(counts(&cleaned, ["removed"]), [3], "{cleaned}");
    assert!(!env.path("here").join(key("dd")).exists());
}

/// As earlier versions of this program, or a plain put, have stored it.
#[test]
fn a_compressed_file_that_is_cut_off_in_a_ref_gives_way_to_a_whole_one() {
    let env = environment!();
    let xla = |words: &[&str]| cache(&env, "xla", words);
    env.write(format!("in/{}", key("aa")), &ZLIB[..900]);
    env.write(format!("in/{}", key("bb")), ZSTD);
    env.ok(["put", "in", REF, "--profile", "none"]);
    let pulled = xla(&["pull", "alone", REF]);
    assert_eq!(counts(&pulled, ["pulled", "refused"]), [1, 1], "{pulled}");
    assert!(!env.path("alone").join(key("aa")).exists());
    let why = xla(&["why", &key("aa"), REF]);
    assert_eq!(counts(&why, ["found", "broken"]), [0, 1], "{why}");
    env.write(format!("here/{}", key("aa")), ZLIB);
    let pushed = xla(&["push", "here", REF]);
    let told = counts(&pushed, ["pushed", "same", "conflicts"]);
    assert_eq!(told, [1, 0, 0], "{pushed}");
    let pulled = xla(&["pull", "alone", REF]);
    assert_eq!(counts(&pulled, ["pulled", "refused"]), [1, 0], "{pulled}");
    assert_eq!(fs::read(env.path("alone").join(key("aa"))).unwrap(), ZLIB);
    // A whole one under a key that is taken changes nothing.
    env.write(format!("other/{}", key("aa")), ZSTD);
    let pushed = env.store(["cache", "--profile", "xla", "push", "other", REF]);
    assert_eq!(pushed.code, Some(6), "{pushed}");
}

#[test]
fn a_group_that_is_torn_or_lacks_a_file_is_not_complete() {
    let env = environment!();
    let triton = |words: &[&str]| cache(&env, "triton", words);
    let group = |dir: &str, text: &str| {
        let root = env.path(dir);
        let text = text.replace("ROOT", root.to_str().unwrap());
        env.write(format!("{dir}/__grp__k.json"), text);
    };
    let whole = "{\"child_paths\": {\"k.ptx\": \"ROOT/k.ptx\", \"k.cubin\": \"ROOT/k.cubin\"}}";
    for name in ["WHOLE", "TORN", "LACKS", "EMPTY", "TORNLIB"] {
        for file in ["k.ptx", "k.cubin"] {
            env.write(format!("here/{name}/{file}"), "code");
        }
        group(&format!("here/{name}"), whole);
    }
    group("here/TORN", &whole[..40]);
    fs::remove_file(env.path("here/LACKS/k.cubin")).unwrap();
    env.write("here/EMPTY/k.cubin", "");
    // A library beside it does not stand for the group.
    group("here/TORNLIB", &whole[..40]);
    env.write("here/TORNLIB/k.so", "code");
    let pushed = triton(&["push", "here", REF]);
    assert_eq!(counts(&pushed, ["pushed", "refused"]), [1, 4], "{pushed}");
    // The same in a ref.
    env.ok(["put", "here", "project/llama/put", "--profile", "none"]);
    for name in ["TORN", "LACKS", "EMPTY", "TORNLIB"] {
        let lookup = [
            "cache",
            "--profile",
            "triton",
            "lookup",
            name,
            "project/llama/put",
        ];
        assert_eq!(env.store(lookup).code, Some(3), "{name}");
    }
    let pulled = triton(&["pull", "there", "project/llama/put"]);
    assert_eq!(counts(&pulled, ["pulled", "refused"]), [1, 4], "{pulled}");
    // Triton makes no locks: what was changed just now may still be written, and a pull lets it be.
    fs::create_dir_all(env.path("young")).unwrap();
    env.write("young/WHOLE/k.ptx", "code");
    let pulled = triton(&["pull", "young", REF]);
    assert_eq!(counts(&pulled, ["pulled", "skipped"]), [0, 1], "{pulled}");
    let long_ago = SystemTime::now() - Duration::from_secs(2 * 3600);
    let dir = fs::File::open(env.path("young/WHOLE")).unwrap();
    dir.set_modified(long_ago).unwrap();
    let pulled = triton(&["pull", "young", REF]);
    assert_eq!(counts(&pulled, ["pulled", "repaired"]), [1, 1], "{pulled}");
    assert!(env.path("young/WHOLE/k.cubin").exists());
    // Half a group that a killed compiler left under another name is not looked at.
    let rank = "vllm/torch_compile_cache/c473fd9511/rank_0_0";
    env.write(format!("{rank}/vllm_compile_cache.py"), "{}");
    env.write(
        format!("{rank}/triton/KEY/tmp.pid_7/__grp__k.json"),
        &whole[..40],
    );
    let status = cache(&env, "vllm", &["status", "vllm"]);
    assert_eq!(counts(&status, ["complete"]), [1], "{status}");
    env.write(format!("{rank}/triton/KEY/__grp__k.json"), &whole[..40]);
    let status = cache(&env, "vllm", &["status", "vllm"]);
    assert_eq!(counts(&status, ["incomplete"]), [1], "{status}");
    // What was pushed says where its files are now, and is complete there.
    triton(&["pull", "elsewhere", REF]);
    let status = triton(&["status", "elsewhere", REF]);
    assert_eq!(counts(&status, ["complete"]), [1], "{status}");
    assert_eq!(status["refs"][0]["same"], 1, "{status}");
}

/// A linker writes its output in place, and may be killed.
#[test]
fn a_library_that_is_cut_off_is_neither_pushed_nor_pulled() {
    let env = environment!();
    let inductor = |words: &[&str]| cache(&env, "inductor", words);
    env.write("f.c", "int f(void) { return 1; }");
    let built = std::process::Command::new("gcc")
        .args(["-shared", "-o", "f.so", "f.c"])
        .current_dir(env.path("."))
        .status();
    assert!(built.unwrap().success());
    let library = fs::read(env.path("f.so")).unwrap();
    let key = |letter: &str| format!("c{}", letter.repeat(51));
    let place = |dir: &str, letter: &str| format!("{dir}/a{letter}/{}.so", key(letter));
    env.write(place("here", "b"), &library);
    env.write(place("here", "c"), &library[..library.len() / 2]);
    let pushed = inductor(&["push", "here", REF]);
    assert_eq!(counts(&pushed, ["pushed", "refused"]), [1, 1], "{pushed}");
    let status = inductor(&["status", "here"]);
    assert_eq!(
        counts(&status, ["complete", "incomplete"]),
        [1, 1],
        "{status}"
    );
    // As a plain put has stored it. A whole one replaces it.
    env.ok(["put", "here", REF, "--profile", "none"]);
    let pulled = inductor(&["pull", "alone", REF]);
    assert_eq!(counts(&pulled, ["pulled", "refused"]), [1, 1], "{pulled}");
    assert!(!env.path(place("alone", "c")).exists());
    env.write(place("there", "c"), &library);
    let pushed = inductor(&["push", "there", REF]);
    assert_eq!(counts(&pushed, ["pushed", "refused"]), [1, 0], "{pushed}");
    let pulled = inductor(&["pull", "alone", REF]);
    assert_eq!(counts(&pulled, ["pulled", "refused"]), [1, 0], "{pulled}");
    assert_eq!(fs::read(env.path(place("alone", "c"))).unwrap(), library);
}

/// The library of a launcher has no group that would tell.
#[test]
fn a_launcher_of_triton_that_is_cut_off_is_incomplete() {
    let env = environment!();
    let library = fs::read("/bin/sh").unwrap();
    let (whole, cut) = ("A".repeat(52), "B".repeat(52));
    for (profile, below) in [("triton", ""), ("inductor", "triton/0/")] {
        let dir = format!("{profile}/{below}");
        env.write(format!("{dir}{whole}/launcher.so"), &library);
        env.write(
            format!("{dir}{cut}/launcher.so"),
            &library[..library.len() / 2],
        );
        let status = cache(&env, profile, &["status", profile]);
        assert_eq!(
            counts(&status, ["complete", "incomplete"]),
            [1, 1],
            "{status}"
        );
        // A kernel is such a file, too.
        env.write(
            format!("{dir}{}/kern.cubin", "C".repeat(52)),
            &library[..library.len() / 2],
        );
        env.write(format!("{dir}{}/launcher.so", "C".repeat(52)), &library);
        let status = cache(&env, profile, &["status", profile]);
        assert_eq!(
            counts(&status, ["complete", "incomplete"]),
            [1, 2],
            "{status}"
        );
        let cleaned = cache(&env, profile, &["clean", profile, "--stale", "1ms"]);
        assert_eq!(counts(&cleaned, ["removed"]), [2], "{cleaned}");
        assert!(env.path(dir).join(&whole).exists());
    }
}

/// A clean of a wrong directory: the names may be those of anything.
#[test]
fn a_clean_leaves_directories_that_nothing_marks_as_entries() {
    let env = environment!();
    let sha = "c".repeat(64);
    let md5 = "d".repeat(32);
    env.write(format!("here/{sha}/weights.bin"), "precious");
    env.write(format!("here/{md5}/notes.json"), "{}");
    env.write(format!("here/{}/tmp.1/half", "E".repeat(52)), "half");
    let cleaned = cache(&env, "triton", &["clean", "here", "--stale", "1ms"]);
    assert_eq!(
        counts(&cleaned, ["removed", "no_entry"]),
        [1, 2],
        "{cleaned}"
    );
    for (name, file) in [(sha, "weights.bin"), (md5, "notes.json")] {
        assert!(env.path("here").join(name).join(file).exists());
    }
}
