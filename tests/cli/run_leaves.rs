//! What a run never saves, and how it says so.

use std::fs;

use serde_json::Value;
use support::{Finished, environment, under};

use crate::run::{REF, newest, run};

/// The words of a save of the same directory.
#[test]
fn a_run_names_the_tokens_locks_and_unfinished_files_that_it_leaves_out() {
    let env = environment!();
    let script = "cd $STORE_PROJECT_CACHE_DIR; mkdir -p huggingface/hub/.locks/m huggingface/hub/models--a--b/blobs neuron; cd huggingface; \
                  echo x > token; echo x > stored_tokens; : > hub/.locks/m/x.lock; echo p > hub/models--a--b/blobs/q.incomplete; echo k > kept";
    let secrets =
        "note: left out, as they hold credentials: huggingface/stored_tokens, huggingface/token\n";
    let others = "note: left out: 1 of locks (huggingface/hub/.locks), 1 unfinished (huggingface/hub/models--a--b/blobs/q.incomplete)\n";
    let long = format!("{script}; sleep 2.5");
    for words in [
        run(&[], script),
        // Once, however often it is saved meanwhile.
        run(&["--save-every", "1s"], &long),
    ] {
        let done = env.store(words);
        assert_eq!(done.code, Some(0), "{done}");
        for told in [secrets, others] {
            assert_eq!(done.stderr.matches(told).count(), 1, "{done}");
        }
        assert_eq!(done.stderr.matches("left out").count(), 2, "{done}");
    }
    assert_eq!(newest(&env, REF), ["huggingface/kept=k"]);
    fs::remove_dir_all(env.path("base")).unwrap();
    // Also if nothing else is there.
    let only = "mkdir -p $STORE_PROJECT_CACHE_DIR/huggingface; echo x > $STORE_PROJECT_CACHE_DIR/huggingface/token";
    let other = ["run", "--project", "other", "--base", "base"];
    let done = env.store(other.iter().chain(&["--", "/bin/sh", "-c", only]));
    let told = "note: left out, as they hold credentials: huggingface/token\n";
    assert!(done.code == Some(0) && done.stderr.contains(told), "{done}");
    fs::remove_dir_all(env.path("base")).unwrap();
    let asked = env.store(run(&["--json"], script));
    let lines = asked.stderr.lines();
    let reports = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let notes: Vec<_> = reports.map(|report| report["notes"].to_string()).collect();
    assert!(notes.concat().contains("1 of locks"), "{asked}");
    // So does the save from the list, after a run that could not reach its store.
    let store = env.path("home/.local/share/store");
    let away = format!(
        "mv {0} {0}.away; echo l > $STORE_PROJECT_CACHE_DIR/l",
        store.display()
    );
    let unsaved = env.store(run(&[], &away));
    assert_eq!(unsaved.code, Some(1), "{unsaved}");
    fs::rename(store.with_extension("away"), &store).unwrap();
    let saved = env.store(["save", "--pending"]);
    assert_eq!(saved.code, Some(0), "{saved}");
    for told in [secrets, others] {
        assert!(saved.stderr.contains(told), "{saved}");
    }
}

/// Whoever follows a hint of a run saves its directory by hand.
#[test]
fn a_save_by_hand_leaves_out_what_the_run_leaves_out() {
    let env = environment!();
    let script = "mkdir -p $TRITON_CACHE_DIR/half; echo 1 > $TRITON_CACHE_DIR/half/a.lock; echo 2 > $STORE_PROJECT_CACHE_DIR/kept";
    env.ok(run(&[], script));
    env.write("base/project/more", "3");
    for target in [&[][..], &[REF]] {
        let words = [&["save", "base/project"], target].concat();
        let saved = env.store(words);
        assert_eq!(saved.code, Some(0), "{saved}");
        assert_eq!(newest(&env, REF), ["kept=2", "more=3"]);
    }
}

/// Somebody looked at the file and took it: it is named again only when it is another one.
#[test]
fn what_was_accepted_is_not_left_out_by_the_next_run() {
    let env = environment!();
    let token = "key: hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567";
    let script = format!(
        "cd $STORE_PROJECT_CACHE_DIR; mkdir d; echo {token} > d/conf; echo {token} > other"
    );
    let left = env.store(run(&[], &script));
    assert_eq!(left.code, Some(6), "{left}");
    let left = env.store(["save", "base/project", REF, "--allow-secret", "/d/conf"]);
    assert_eq!(left.code, Some(6), "{left}");
    let left = env.store(run(&[], "true"));
    assert_eq!(left.code, Some(6), "{left}");
    assert!(!left.stderr.contains("d/conf"), "{left}");
    env.ok(["save", "base/project", REF, "--allow-secret", "/other"]);
    for script in ["true", "echo 1 > $STORE_PROJECT_CACHE_DIR/more"] {
        env.ok(run(&[], script));
    }
    let script = "rm $STORE_PROJECT_CACHE_DIR/d/conf; echo new: hf_zBcDeFgHiJkLmNoPqRsTuVwXyZ01234567 > $STORE_PROJECT_CACHE_DIR/d/conf";
    let left = env.store(run(&[], script));
    assert_eq!(left.code, Some(6), "{left}");
    assert!(
        left.stderr.contains("d/conf: looks like credentials"),
        "{left}"
    );
    assert!(newest(&env, REF).contains(&format!("d/conf={token}")));
}

/// A job mounts something over a directory of its cache. What it hides was not deleted.
#[test]
fn what_an_empty_mount_hides_stays_in_the_ref() {
    let env = environment!();
    env.ok(run(
        &[],
        "cd $STORE_PROJECT_CACHE_DIR; mkdir d e; echo 1 > d/one; echo 2 > two",
    ));
    let script = "cd $STORE_PROJECT_CACHE_DIR; mkdir f; for dir in d e f; do mount -t tmpfs none $dir; done; echo 3 > three";
    let command = env.command(run(&[], script));
    let done: Finished = under("unshare", ["--mount"], &command)
        .output()
        .unwrap()
        .into();
    assert_eq!(done.code, Some(6), "{done}");
    assert!(
        done.stderr
            .contains("/d: an empty file system is mounted there"),
        "{done}"
    );
    assert_eq!(done.stderr.matches("is mounted there").count(), 1, "{done}");
    assert_eq!(newest(&env, REF), ["d/one=1", "three=3", "two=2"]);
    // Without the mount, a deletion is one.
    env.ok(run(&[], "rm $STORE_PROJECT_CACHE_DIR/d/one"));
    assert_eq!(newest(&env, REF), ["three=3", "two=2"]);
}

/// `hf` makes them in whatever HF_HOME it finds.
#[test]
fn marks_of_clients_are_no_reason_for_a_version() {
    let env = environment!();
    let marks = ["run", "--project", "marks", "--base", "marks", "--"];
    let make = [
        "sh",
        "-c",
        "mkdir $HF_HOME; : > $HF_HOME/.check_for_update_done",
    ];
    for script in [&make[..], &["true"]] {
        let done = env.store([&marks[..], script].concat());
        let told = "1 of this machine's state (huggingface/.check_for_update_done)";
        assert!(done.code == Some(0) && done.stderr.contains(told), "{done}");
    }
    let none = env.store(["ls", "project/marks/cache"]);
    assert_eq!(none.code, Some(3), "{none}");
}

/// A login, and marks and logs of clients, are all that `hf auth login` and `hf env` leave.
#[test]
fn a_base_of_which_all_is_left_out_starts_again() {
    let env = environment!();
    let login = "mkdir -p $HF_HOME/hub/.locks $HF_HOME/xet; : > $HF_HOME/.check_for_update_done; echo hf_x > $HF_HOME/token; \
                 echo l > $HF_HOME/xet/log";
    for _ in 0..2 {
        let done = env.store(run(&[], login));
        assert_eq!(done.code, Some(0), "{done}");
        let told = "1 of this machine's state (huggingface/.check_for_update_done)";
        assert!(done.stderr.contains(told), "{done}");
    }
    assert_eq!(newest(&env, REF), [""; 0]);
    let next = env.ok(run(
        &[],
        "cat $HF_HOME/token; echo d > $STORE_PROJECT_CACHE_DIR/data",
    ));
    assert_eq!(next, "hf_x\n");
    assert_eq!(newest(&env, REF), ["data=d"]);
    // Nothing tells what was emptied from what is left out.
    let emptied = env.store(run(&[], "rm $STORE_PROJECT_CACHE_DIR/data"));
    assert_eq!(emptied.code, Some(0), "{emptied}");
    assert!(emptied.stderr.contains("nothing is deleted"), "{emptied}");
    assert_eq!(newest(&env, REF), ["data=d"]);
    env.ok(run(&[], "cat $HF_HOME/token"));
    // A glob that somebody gives may be mistyped.
    env.write("own/data", "mine");
    let refused = env.store(["save", "own", "project/own/data", "--exclude", "*"]);
    assert_eq!(refused.code, Some(2), "{refused}");
}

#[test]
fn a_variable_that_leads_downloads_past_the_caches_is_named() {
    let env = environment!();
    let told = |name: &str, place: &str, options: &[&str]| {
        let mut command = env.command(run(options, "true"));
        let done: Finished = command.env(name, place).output().unwrap().into();
        assert_eq!(done.code, Some(0), "{done}");
        done.stderr
    };
    let elsewhere = env.path("elsewhere").display().to_string();
    for name in [
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "TRANSFORMERS_CACHE",
    ] {
        let said = told(name, &elsewhere, &[]);
        let expected = format!("warning: {name} is set and leads to {elsewhere}: ");
        assert!(said.contains(&expected), "{said}");
        let inside = env.path("base/project/hub").display().to_string();
        for place in ["", &inside, "base/project/huggingface/hub"] {
            let said = told(name, place, &[]);
            assert!(!said.contains(name), "{place}: {said}");
        }
        assert!(told(name, "base/project/../out", &[]).contains(name));
    }
    // The layout sets it itself, or nothing of Hugging Face.
    let text = "[layout.own]\nproject = \"project\"\nteam = \"team\"\nenv.HF_HOME = \"{project}/hf\"\nenv.HF_HUB_CACHE = \"{project}/hub\"\n\
                [layout.none]\nproject = \"project\"\nteam = \"team\"\n";
    env.write("home/.config/store/config.toml", text);
    let none = told("HF_HUB_CACHE", &elsewhere, &["--layout", "none"]);
    assert!(!none.contains("HF_HUB_CACHE"), "{none}");
    let own = told("HF_HUB_CACHE", &elsewhere, &["--layout", "own"]);
    let hub = env.path("base/project/hub").display().to_string();
    let expected = format!("note: HF_HUB_CACHE was {elsewhere}, and is {hub} for the command");
    assert!(own.contains(&expected), "{own}");
    let same = told("HF_HUB_CACHE", &hub, &["--layout", "own"]);
    assert!(!same.contains("HF_HUB_CACHE"), "{same}");
}
