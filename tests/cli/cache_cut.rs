//! Compile caches with truncated or changing files: an incomplete entry never becomes the first of its key.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use support::{environment, trees};

use crate::cache::{COMPILER, PROJECT, module, modules, neff};

const TEAM: &str = "team/speech/neff";

fn cut(dir: &Path, len: u64) {
    let file = fs::File::options().write(true).open(dir.join("model.neff"));
    file.unwrap().set_len(len).unwrap();
}

fn found(root: &Path, key: &str) -> Option<Vec<u8>> {
    let dir = root.join(COMPILER).join(format!("MODULE_{key}"));
    fs::read(dir.join("model.neff")).ok()
}

#[test]
fn a_module_that_was_cut_off_beside_its_mark_is_not_pushed() {
    let env = environment!();
    env.ok(["init"]);
    let here = env.path("here");
    module(&here, "1+a", 1);
    // Truncated near its end, in its data, after its lengths, in them, and before them; and one of zeros only.
    for (key, len) in [
        ("2+a", 10_999),
        ("3+a", 5_000),
        ("4+a", 24),
        ("5+a", 20),
        ("6+a", 17),
    ] {
        cut(&module(&here, key, 2), len);
    }
    trees::write(&module(&here, "7+a", 2).join("model.neff"), &[0; 11_000]);
    let pushed = neff(&env, &["push", "here", PROJECT], 0);
    assert_eq!(pushed["pushed"], 1, "{pushed}");
    let refused = pushed["refused"].as_array().unwrap();
    assert_eq!(refused.len(), 6, "{pushed}");
    assert!(
        refused.iter().all(|one| one["state"] == "incomplete"),
        "{pushed}"
    );
    // The first complete compile of these keys is stored.
    for key in ["2+a", "7+a"] {
        module(&env.path("there"), key, 3);
    }
    let pushed = neff(&env, &["push", "there", PROJECT], 0);
    assert_eq!(pushed["pushed"], 2, "{pushed}");
    // A pull replaces the truncated entries here.
    let pulled = neff(&env, &["pull", "here", PROJECT], 0);
    assert_eq!(
        (&pulled["pulled"], &pulled["repaired"]),
        (&2.into(), &2.into()),
        "{pulled}"
    );
    assert_eq!(found(&here, "2+a"), found(&env.path("there"), "2+a"));
}

/// As earlier versions of this program, or others, have stored it.
#[test]
fn a_module_that_is_cut_off_in_a_ref_is_not_pulled_and_gives_way_to_a_whole_one() {
    let env = environment!();
    cut(&module(&env.path("in"), "1+a", 1), 5_000);
    module(&env.path("in"), "2+a", 2);
    env.ok(["put", "in", PROJECT, "--profile", "none"]);
    module(&env.path("team"), "1+a", 7);
    neff(&env, &["push", "team", TEAM, "--public"], 0);
    let pulled = neff(&env, &["pull", "alone", PROJECT], 0);
    assert_eq!(pulled["pulled"], 1, "{pulled}");
    assert_eq!(pulled["refused"][0]["state"], "incomplete", "{pulled}");
    assert_eq!(modules(&env.path("alone")), ["MODULE_2+a"]);
    // The next ref has the complete entry.
    let pulled = neff(&env, &["pull", "both", PROJECT, TEAM], 0);
    assert_eq!(pulled["pulled"], 2, "{pulled}");
    assert_eq!(
        found(&env.path("both"), "1+a"),
        Some(trees::neff(7, 11_000))
    );
    let pushed = neff(&env, &["push", "team", PROJECT], 0);
    assert_eq!(pushed["pushed"], 1, "{pushed}");
    neff(&env, &["pull", "alone", PROJECT], 0);
    assert_eq!(
        found(&env.path("alone"), "1+a"),
        Some(trees::neff(7, 11_000))
    );
}

/// All commands that look at a ref agree with `pull` on what is complete.
#[test]
fn what_is_cut_off_in_a_ref_is_no_hit_and_nothing_to_pull() {
    let env = environment!();
    cut(&module(&env.path("in"), "1+a", 1), 5_000);
    let unmarked = module(&env.path("in"), "2+a", 2);
    fs::remove_file(unmarked.join("model.done")).unwrap();
    module(&env.path("in"), "3+a", 3);
    env.ok(["put", "in", PROJECT, "--profile", "none"]);
    let keys = ["MODULE_1+a", "MODULE_2+a", "MODULE_3+a"];
    let lookup = |refs: &[&str], code: i32| {
        let words = [&["neff", "lookup"], &keys[..], refs].concat();
        let done = env.store(words.iter().chain(&["--json"]));
        assert_eq!(done.code, Some(code), "{done}");
        let text = String::from_utf8(done.stdout.clone()).unwrap();
        let lines = text.lines().map(serde_json::from_str::<Value>);
        let hits = lines.map(|line| line.unwrap());
        hits.map(|line| line["ref"].as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let own = || Some(PROJECT.to_owned());
    assert_eq!(lookup(&[PROJECT], 6), [None, None, own()]);
    let status = neff(&env, &["status", "none", PROJECT], 0);
    let there = &status["refs"][0];
    assert_eq!(
        (&there["complete"], &there["absent_here"]),
        (&1.into(), &1.into())
    );
    assert_eq!(there["broken_there"].as_array().unwrap().len(), 2);
    let dry = neff(&env, &["pull", "none", PROJECT, "--dry-run"], 0);
    let pulled = neff(&env, &["pull", "pulled", PROJECT], 0);
    for told in [&dry, &pulled] {
        assert_eq!(told["pulled"], 1, "{told}");
        assert_eq!(told["refused"].as_array().unwrap().len(), 2, "{told}");
    }
    let why = neff(&env, &["why", "MODULE_1+a", PROJECT], 0);
    assert_eq!(why["found"], json!([]), "{why}");
    assert_eq!(why["broken"][0]["state"], "incomplete", "{why}");
    // Nor is it the nearest entry of another key.
    let why = neff(&env, &["why", "MODULE_4+a", PROJECT], 0);
    let near = why["nearest"].as_array().unwrap();
    assert_eq!(near.len(), 1, "{why}");
    assert!(near[0]["entry"].as_str().unwrap().ends_with("3+a"), "{why}");
    // Another ref has a complete one.
    module(&env.path("team"), "1+a", 7);
    neff(&env, &["push", "team", TEAM, "--public"], 0);
    let team = Some(TEAM.to_owned());
    assert_eq!(lookup(&[PROJECT, TEAM], 6), [team, None, own()]);
}

#[test]
fn a_pull_from_nowhere_leaves_no_directory() {
    let env = environment!();
    env.ok(["init"]);
    let done = env.store(["neff", "pull", "here", PROJECT]);
    assert_eq!(done.code, Some(3), "{done}");
    assert!(!env.path("here").exists());
}

/// The usual directory may be missing, since nothing was compiled yet; a named one is mistyped.
#[test]
fn a_named_directory_that_is_missing_is_told() {
    let env = environment!();
    env.ok(["init"]);
    env.write("file", "");
    for verb in [
        &["status"][..],
        &["clean"],
        &["why", "1+a"],
        &["push", PROJECT],
    ] {
        let words = [&["neff"], verb].concat();
        for (dir, code) in [("here", 3), ("file", 2)] {
            let done = env.store([&words[..], &[dir]].concat());
            assert_eq!(done.code, Some(code), "{verb:?} {done}");
            assert!(!env.path("here").exists());
        }
    }
    let usual = env
        .command(["neff", "status"])
        .env("NEURON_COMPILE_CACHE_URL", env.path("here"))
        .output()
        .unwrap();
    assert!(usual.status.success(), "{usual:?}");
}

/// A key is compiled again while it is pushed, and the marker of the first compile exists.
#[test]
fn what_changes_while_it_is_pushed_is_not_torn() {
    const BYTES: usize = 2_000_000;
    let env = environment!();
    env.ok(["init"]);
    let here = env.path("here");
    let dir = module(&here, "1+a", 1);
    module(&here, "2+a", 2);
    let compile = |round: u8| {
        let mut whole = trees::neff(1, BYTES);
        whole[1024..].fill(round);
        fs::write(dir.join("model.neff"), &whole).unwrap();
    };
    compile(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in (1..=255).cycle() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                compile(round);
            }
        });
        for round in 0..8 {
            let target = format!("project/llama/neff-{round}");
            let pushed = neff(&env, &["push", "here", &target], 0);
            let out = format!("out-{round}");
            let pulled = neff(&env, &["pull", &out, &target], 0);
            let Some(bytes) = found(&env.path(&out), "1+a") else {
                assert_eq!(pulled["pulled"], 1, "{pushed}{pulled}");
                continue;
            };
            assert_eq!(bytes.len(), BYTES, "{round}");
            assert!(
                bytes[1024..].iter().all(|byte| *byte == bytes[1024]),
                "{round}"
            );
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// A user's older profile without lengths still works, and a profile may state them.
#[test]
fn own_profiles_say_where_lengths_are_or_nothing() {
    let env = environment!();
    let profile = |lengths: &str| {
        let text = format!(
            "about = \"mine\"\n[[entry]]\npath = \"{{key:hex4}}\"\nneeds = [{{ files = [\"code\"], bytes = 1{lengths} }}]\n"
        );
        env.write("home/.config/store/profiles/mine.toml", text);
    };
    env.write("here/00aa/code", 9_u64.to_le_bytes());
    let status = || {
        let told = env.ok(["cache", "--profile", "mine", "status", "here", "--json"]);
        serde_json::from_str::<serde_json::Value>(&told).unwrap()
    };
    profile("");
    let whole = status();
    profile(", lengths = [0]");
    let cut = status();
    assert_ne!(whole, cut, "{whole}");
    let pushed = env.store(["cache", "--profile", "mine", "push", "here", PROJECT]);
    assert!(pushed.stderr.contains("00aa: incomplete"), "{pushed}");
    profile(", lengths = [4096]");
    let wrong = env.store(["cache", "--profile", "mine", "status", "here"]);
    assert_eq!(wrong.code, Some(2), "{wrong}");
    assert!(
        wrong.stderr.contains("lengths: expected places up to 4088"),
        "{wrong}"
    );
}

#[test]
fn an_entry_with_a_link_that_leads_nowhere_keeps_no_other_one_back() {
    let env = environment!();
    let here = env.path("here");
    module(&here, "1+a", 1);
    symlink("/nowhere", module(&here, "2+b", 2).join("model.hlo")).unwrap();
    let pushed = neff(&env, &["push", "here", PROJECT], 0);
    assert_eq!(pushed["pushed"], 1, "{pushed}");
    let refused = pushed["refused"].as_array().unwrap();
    assert_eq!(refused.len(), 1, "{pushed}");
    assert_eq!(refused[0]["state"], "incomplete", "{pushed}");
    let status = neff(&env, &["status", "here", PROJECT], 0);
    assert_eq!(status["complete"], 1, "{status}");
    assert_eq!(
        status["incomplete"].as_array().unwrap().len(),
        1,
        "{status}"
    );
    assert_eq!(status["refs"][0]["absent_there"], 0, "{status}");
    // The compiler may need nothing of that link.
    let cleaned = neff(&env, &["clean", "here", "--stale", "1s"], 0);
    for field in ["removed", "kept"] {
        assert_eq!(cleaned[field], serde_json::json!([]), "{cleaned}");
    }
}
