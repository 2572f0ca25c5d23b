//! Profiles of compile caches: the built-in ones, with directories as their compilers leave them, and a user's own.

use std::path::Path;

use serde_json::Value;
use support::environment;

#[test]
fn kernels_of_triton_name_their_files_where_they_arrive() {
    let env = environment!();
    let root = env.path("here");
    let group = |root: &Path| {
        let ptx = root.join("KEY/k.ptx");
        format!("{{\"child_paths\": {{\"k.ptx\": \"{}\"}}}}", ptx.display())
    };
    env.write("here/KEY/k.ptx", "code");
    env.write("here/KEY/k.json", "{\"num_warps\": 4}");
    env.write("here/KEY/__grp__k.json", group(&root));
    env.write("here/KEY/tmp.pid_7_ab/k.cubin", "half");
    env.write("here/OPEN/k.ptx", "code");
    let cache = |words: &[&str]| env.ok(["cache", "--profile", "triton"].iter().chain(words));
    cache(&["push", "here", "project/llama/triton"]);
    cache(&["pull", "there", "project/llama/triton"]);
    let there = env.path("there");
    let found = std::fs::read_to_string(there.join("KEY/__grp__k.json")).unwrap();
    assert_eq!(found, group(&there));
    assert!(!there.join("KEY/tmp.pid_7_ab").exists());
    assert!(!there.join("OPEN").exists());
    let again = env.ok([
        "cache",
        "--profile",
        "triton",
        "push",
        "there",
        "project/llama/triton",
        "--json",
    ]);
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(
        (&again["pushed"], &again["same"]),
        (&0.into(), &1.into()),
        "{again}"
    );
}

/// What each compiler keeps, and what it leaves unfinished.
#[test]
fn each_profile_knows_what_its_compiler_keeps() {
    let env = environment!();
    let (ten, md5, sha) = ("c473fd9511", "ab".repeat(16), "cd".repeat(32));
    let model = format!("vllm/torch_compile_cache/{ten}/rank_0_0/backbone");
    let half = format!("vllm/torch_compile_cache/{ten}/rank_1_0/backbone");
    let ahead = format!("vllm/torch_aot_compile/{sha}/rank_0_0");
    for (file, text) in [
        ("inductor/fxgraph/2x/f2xk/sha", "graph"),
        ("inductor/fxgraph/2x/f2xk/.7.8.tmp", "half"),
        ("inductor/aotautograd/ak/entry", "graph"),
        ("inductor/triton/0/KEY/__grp__k.json", "{}"),
        ("inductor/triton/0/HALF/k.ptx", "code"),
        ("inductor/2x/c2xk.py", "code"),
        ("inductor/locks/f2xk.lock", ""),
        (&format!("{model}/vllm_compile_cache.py"), "{}"),
        (&format!("{model}/computation_graph.py"), "code"),
        (&format!("{half}/computation_graph.py"), "code"),
        (&format!("{ahead}/model"), "code"),
        (&format!("neff-vllm/{md5}/graph.neff"), "code"),
        (&format!("neff-vllm/{md5}.tmp/graph.neff"), "half"),
        (&format!("xla/jit_f-{sha}-cache"), "code"),
        (&format!("xla/jit_f-{sha}-atime"), "12345678"),
    ] {
        env.write(file, text);
    }
    let md5 = [md5.as_str()];
    let sha = format!("jit_f-{sha}-cache");
    for (profile, complete, left) in [
        ("inductor", 4, &["locks", "HALF", ".7.8.tmp"][..]),
        ("vllm", 2, &["rank_1_0"]),
        ("neff-vllm", 1, &[".tmp"]),
        ("xla", 1, &["atime"]),
    ] {
        let name = format!("project/p/{profile}");
        let cache = ["cache", "--profile", profile];
        let pushed = env.ok(cache.iter().chain(&["push", profile, &name, "--json"]));
        let pushed: Value = serde_json::from_str(&pushed).unwrap();
        assert_eq!(pushed["pushed"], complete, "{pushed}");
        let there = format!("there-{profile}");
        env.ok(cache.iter().chain(&["pull", &there, &name]));
        let found = support::seen(&env.path(&there));
        let found: Vec<String> = found
            .keys()
            .map(|path| path.to_string_lossy().into())
            .collect();
        for word in left {
            assert!(
                !found.iter().any(|path| path.contains(word)),
                "{word}: {found:?}"
            );
        }
        let has = |word: &str| found.iter().any(|path| path.contains(word));
        match profile {
            "neff-vllm" => assert!(md5.into_iter().all(has), "{found:?}"),
            "xla" => assert!(has(&sha), "{found:?}"),
            _ => {}
        }
    }
}

/// Inductor links a library in place, beside a build directory. If it is killed, both stay.
#[test]
fn a_library_that_is_being_linked_stays_here_until_it_is_whole() {
    let env = environment!();
    let name = "project/p/inductor";
    let key = |ending: &str| format!("here/2x/c2xk{}.{ending}", "q".repeat(48));
    env.write(key("main.cpp"), "code");
    env.write(key("main.so"), "half of a libr");
    env.write(key("main_CxxBuild/a.o"), "object");
    let cache = |words: &[&str]| -> Value {
        let all = ["cache", "--profile", "inductor"];
        let said = env.ok(all.iter().chain(words).chain(&["--json"]));
        serde_json::from_str(&said).unwrap()
    };
    assert_eq!(cache(&["push", "here", name])["pushed"], 1);
    // After a while, leftovers of a killed compiler can be removed.
    let cleaned = cache(&["clean", "here", "--stale", "1h", "--dry-run"]);
    assert_eq!(cleaned["removed"].as_array().unwrap().len(), 0, "{cleaned}");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let cleaned = cache(&["clean", "here", "--stale", "1s"]);
    assert_eq!(cleaned["removed"].as_array().unwrap().len(), 1, "{cleaned}");
    let left = support::seen(&env.path("here"));
    let left: Vec<_> = left.keys().map(|path| path.to_string_lossy()).collect();
    let goes = |path: &str| path.ends_with(".so") || path.contains("_CxxBuild");
    assert!(!left.iter().any(|path| goes(path)), "{left:?}");
    // The library is complete now, and its build directory is gone.
    env.write(key("main.so"), "a whole library");
    assert_eq!(cache(&["push", "here", name])["pushed"], 1);
    cache(&["pull", "there", name]);
    let found = std::fs::read_to_string(env.path(key("main.so").replacen("here", "there", 1)));
    assert_eq!(found.unwrap(), "a whole library");
}

/// As a plain put has stored it.
#[test]
fn a_library_that_was_being_linked_in_a_ref_is_not_taken() {
    let env = environment!();
    let name = "project/p/inductor";
    let key = format!("c2xk{}.main", "q".repeat(48));
    env.write(format!("in/2x/{key}.so"), "half of a libr");
    env.write(format!("in/2x/{key}_CxxBuild/a.o"), "object");
    for dir in ["in", "there"] {
        env.write(format!("{dir}/2x/{key}.cpp"), "code");
    }
    env.ok(["put", "in", name, "--profile", "none"]);
    env.write(format!("here/2x/{key}.so"), "a whole library");
    let cache = |words: &[&str]| {
        let all = ["cache", "--profile", "inductor"];
        env.store(all.iter().chain(words).chain(&["--json"]))
    };
    let told = |words: &[&str]| -> Value {
        let done = cache(words);
        serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{done}"))
    };
    let library = format!("{key}.so");
    assert_eq!(cache(&["lookup", &library, name]).code, Some(3));
    for pulled in [
        told(&["pull", "there", name]),
        told(&["pull", "there", name, "--dry-run"]),
    ] {
        assert_eq!(pulled["pulled"], 0, "{pulled}");
        assert_eq!(pulled["refused"][0]["state"], "incomplete", "{pulled}");
    }
    // A whole one would stay beside that directory.
    let pushed = told(&["push", "here", name]);
    assert_eq!(pushed["pushed"], 0, "{pushed}");
    assert_eq!(pushed["refused"][0]["ref"], name, "{pushed}");
    let build = format!("{name}:2x/{key}_CxxBuild");
    env.ok(["rm", &build, &format!("{name}:2x/{library}"), "--yes"]);
    assert_eq!(told(&["push", "here", name])["pushed"], 1);
    assert_eq!(told(&["pull", "there", name])["pulled"], 1);
    let found = std::fs::read_to_string(env.path(format!("there/2x/{library}")));
    assert_eq!(found.unwrap(), "a whole library");
}

#[test]
fn an_entry_that_is_a_file_names_places_where_it_arrives() {
    let env = environment!();
    let text =
        "about = \"\"\n[[entry]]\npath = \"{key:hex4}.json\"\nfile = true\nrebase = [\"*.json\"]\n";
    env.write("home/.config/store/profiles/mine.toml", text);
    let place = |dir: &str| format!("[\"{}\"]", env.path(dir).join("code").display());
    env.write("here/ab12.json", place("here"));
    let mine = |words: &[&str]| env.ok(["cache", "--profile", "mine"].iter().chain(words));
    mine(&["push", "here", "project/p/mine"]);
    mine(&["pull", "a/longer/path", "project/p/mine"]);
    let found = std::fs::read_to_string(env.path("a/longer/path/ab12.json")).unwrap();
    assert_eq!(found, place("a/longer/path"));
    let status = mine(&["status", "a/longer/path", "project/p/mine", "--json"]);
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["refs"][0]["same"], 1, "{status}");
}

#[test]
fn profiles_are_files_and_their_mistakes_are_named() {
    let env = environment!();
    let text = "about = \"mine\"\n[[entry]]\npath = \"{key:hex4}\"\nneeds = [{ files = [\"ok\"], bytes = 0 }]\n";
    env.write("home/.config/store/profiles/mine.toml", text);
    env.write("here/ab12/code", "x");
    env.write("here/ab12/ok", "");
    env.write("here/none/ok", "");
    let mine = |words: &[&str]| env.store(["cache", "--profile", "mine"].iter().chain(words));
    let done = mine(&["push", "here", "project/p/mine", "--json"]);
    assert_eq!(
        serde_json::from_slice::<Value>(&done.stdout).unwrap()["pushed"],
        1,
        "{done}"
    );
    env.write(
        "home/.config/store/profiles/mine.toml",
        text.replace("files", "file"),
    );
    let done = mine(&["status", "here"]);
    assert_eq!(done.code, Some(2), "{done}");
    for word in ["mine.toml", "line 4", "needs", "unknown field `file`"] {
        assert!(done.stderr.contains(word), "{word}: {done}");
    }
    let done = env.store(["cache", "--profile", "trition", "status"]);
    assert_eq!(done.code, Some(2), "{done}");
    assert!(done.stderr.contains("did you mean triton?"), "{done}");
}

/// The path of an entry of Triton may be any name, and so may a mistyped directory be anything.
#[test]
fn a_clean_takes_nothing_that_may_be_something_else() {
    let env = environment!();
    let hash = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567ABCDEFGHIJKLMNOPQRST";
    env.write(format!("home/{hash}/kernel.ttir"), "half");
    env.write("home/myproject/train.py", "precious");
    env.write("home/settings/config.json", "{}");
    env.write("home/package/__init__.py", "");
    env.ok(["put", "home", "project/p/x"]);
    env.ok(["init", "home/store"]);
    env.ok([
        "put",
        "home/settings",
        "project/p/x",
        "--store",
        "home/store",
    ]);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let before = support::seen(&env.path("home"));
    for profile in ["triton", "inductor"] {
        for dir in ["home", "home/store", "home/store/packs"] {
            let cache = ["cache", "--profile", profile, "clean", dir, "--stale", "1s"];
            let cleaned = env.ok(cache.iter().chain(&["--json"]));
            let cleaned: Value = serde_json::from_str(&cleaned).unwrap();
            let count = |field: &str| cleaned[field].as_array().map_or(0, Vec::len);
            let removed = usize::from(profile == "triton" && dir == "home");
            assert_eq!(count("removed"), removed, "{cleaned}");
            assert_eq!(
                count("no_entry") > 0,
                profile == "triton" || dir == "home",
                "{cleaned}"
            );
        }
    }
    let mut after = support::seen(&env.path("home"));
    after.retain(|path, _| before.contains_key(path));
    let gone: Vec<_> = before
        .keys()
        .filter(|path| !after.contains_key(*path))
        .collect();
    assert!(
        gone.iter()
            .all(|path| path.to_string_lossy().contains(hash)),
        "{gone:?}"
    );
    env.ok(["verify", "--read-data", "--store", "home/store"]);
}
