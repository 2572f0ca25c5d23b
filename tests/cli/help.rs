//! The help of the command.

use support::{Finished, TestEnvironment, check, environment};

#[test]
#[expect(clippy::too_many_lines, reason = "it lists every verb")]
fn the_top_level_help() {
    let env = environment!();
    check!(env, env.store(["--help"]), @"
    exit code: 0
    --- stdout
    A content-addressed artifact store for ML clusters.

    Put a directory in under a name, and get it out as it was; every byte is kept once.

    Usage: store [OPTIONS] <COMMAND>

    Data:
      put          Put a directory or a file into the store, as a new version of a ref
      save         Merge what changed in a directory into its ref, as a new version
      get          Get a ref, or a path inside one, as a private and writable copy
      materialize  Make a tree of hard links from the host's pool, in the time it takes to make links
      run          Run a command with the caches of its project, and save what it adds to them
      cache        Share what compilers made: pull and push the entries of a compile cache
      wait         Wait until a ref exists, or has a newer version
      watch        Publish the checkpoints of a training job as they are finished
      serve        Serve the store to clients of a Hugging Face Hub and of S3
      cat          Print the bytes of one file, or a range of them

    Look:
      ls           List namespaces, the refs of a namespace, or the entries of a ref
      diff         Show the differences between two refs, or between a ref and a directory
      history      List the versions of a ref, newest first
      summarize    Show what a namespace or a ref takes, and where in it
      du           Show how much each namespace takes, the largest first
      info         Show a store's identity and statistics

    Clusters:
      cluster      Give names to stores, so that `--store`, `push`, `pull` and `duplicate` know them
      where        Show which clusters have a ref: all of it, or which versions
      push         Copy refs to a cluster; only missing chunks are sent
      pull         Copy refs from a cluster; only missing chunks are sent
      duplicate    Copy refs from one store to another; only missing chunks are sent
      export       Write refs into one file, to carry them where there is no network
      import       Bring refs in from a file that `store export` wrote

    Space:
      rm           Drop a version, a ref with all its versions, or a namespace with all its refs
      undo         Bring back what the last `rm` dropped
      pin          Protect a version from retention and `rm`
      unpin        Remove a version's pin
      policy       Show or change what the store keeps, and how much its namespaces may take
      gc           Reclaim space that no version needs
      pool         Manage the pool of this host: the whole files that trees link to

    Soundness:
      verify       Check that everything is there, and that it is what was written
      repair       Put back log entries, rebuild segments from packs, and condemn what is damaged

    Set-up:
      init         Make a new store
      token        Manage who may ask `store serve`: with tokens, nobody is let in without one
      help         Print the help of a verb, or a guide by task
      completions  Print the completions of a shell
      man          Print the manual page, or write one for each verb

    `store help TOPIC` prints a guide:
      bucket, clusters, compile-caches, doors, job-caches, kubernetes, promises, reference, slurm, space, systemd, users

    Options of every verb:
          --store <URL>
              The store: a directory, a URL or a cluster's name [default: from the configuration, else
              $XDG_DATA_HOME/store]
              
              [env: STORE_URL]

          --store-profile <NAME>
              The profile in the configuration that says how to reach the store's bucket [default: the
              environment]
              
              [env: STORE_PROFILE]

          --json
              Print JSON for machines: one object, or one per line for a list

          --memory <SIZE>
              How much memory buffers may take, like 256MiB [default: 128 MiB, or a quarter of the
              cgroup's limit]

          --deadline <TIME>
              Keep retrying a failed request to a bucket for up to this long, like 30s; less for a first
              connection [default: 3 min]
              
              [env: STORE_DEADLINE]

          --progress
              Show progress even where standard error is no terminal

      -q, --quiet
              Print no notes, no progress and no summary

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Exit codes:
      0    done
      1    failed
      2    usage error
      3    not found: a store, a ref, a version or a path
      4    corrupt: bytes are not what was written
      5    conflict: somebody else was first, or the destination is in use
      6    partly done: the rest is named
      130  interrupted

    Treat any other code as failure.
    --- stderr
    ");
}

#[test]
fn every_verb_lists_the_exit_codes() {
    let env = environment!();
    let help = env.ok(["--help"]);
    let (_, verbs) = help.split_once("Data:\n").unwrap();
    let (verbs, _) = verbs.split_once("\n\n`store help TOPIC`").unwrap();
    let verbs: Vec<&str> = verbs
        .lines()
        .filter(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(verbs.len() >= 29, "{verbs:?}");
    for verb in verbs {
        let help = env.ok([verb, "--help"]);
        assert!(
            help.contains("Exit codes:\n  0    done\n  1    failed\n"),
            "{verb}: {help}"
        );
    }
}

/// The completions that a shell gets for the last of `words`.
fn offered(env: &TestEnvironment, words: &[&str]) -> Vec<String> {
    let mut command = env.command(["--", "store"].iter().chain(words));
    command
        .env("STORE_COMPLETE", "bash")
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    let done: Finished = command.output().unwrap().into();
    assert_eq!(
        (done.code, done.stderr.as_str()),
        (Some(0), ""),
        "{words:?}"
    );
    let offered = String::from_utf8(done.stdout).unwrap();
    offered.lines().map(str::to_owned).collect()
}

#[test]
fn scripts_of_shells_ask_the_command() {
    let env = environment!();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = env.ok(["completions", shell]);
        assert!(script.contains("STORE_COMPLETE"), "{shell}: {script}");
    }
    assert_eq!(offered(&env, &["hist"]), ["history"]);
    let verbs = offered(&env, &[""]);
    assert!(verbs.contains(&"unpin".to_owned()), "{verbs:?}");
    assert_eq!(
        offered(&env, &["put", "--profile", ""]),
        ["auto", "hf", "none"]
    );
    assert_eq!(
        offered(&env, &["put", "--with", "assets,do"]),
        ["assets,downloads"]
    );
    assert_eq!(
        offered(&env, &["materialize", "--link-mode", "re"]),
        ["reflink"]
    );
    assert_eq!(offered(&env, &["help", "sl"]), ["slurm"]);
}

#[test]
fn names_of_what_there_is_are_completed() {
    let env = environment!();
    env.write("in", "x");
    for name in ["project/a/one", "project/a/two", "team/b/three"] {
        env.ok(["put", "in", name]);
    }
    env.ok(["put", "in", "project/a/one", "--always"]);
    // A shell would run what is in these names.
    for name in [
        "project/a/$(touch x)",
        "project/a/t;x",
        "project/a/`x`",
        "project/a/a b",
    ] {
        env.ok(["put", "in", name]);
    }
    env.ok(["init", "there"]);
    env.ok(["put", "in", "project/far/x", "--store", "there"]);
    env.write(
        "home/.config/store/config.toml",
        "[cluster.h200]\nurl = \"../../../there\"\n[profile.eu]\nregion = \"eu\"\n\
         [job.nightly]\nfrom = \"h200\"\nto = \"/x\"\nrefs = []\n",
    );
    for (words, expected) in [
        (
            &["ls", "pro"] as &[&str],
            &["project/a", "project/a/"] as &[&str],
        ),
        (&["get", ""], &["project/a/", "team/b/"]),
        (&["get", "project/a/"], &["project/a/one", "project/a/two"]),
        (
            &["get", "project/a/one@"],
            &["project/a/one@2", "project/a/one@1"],
        ),
        (&["get", "project/none/"], &[]),
        (&["get", "--store", "h200", "p"], &["project/far/"]),
        (&["pull", "h200", "p"], &["project/far", "project/far/"]),
        (&["push", "project/a/one", "h"], &[]),
        (&["du", "t"], &["team/b"]),
        (&["cluster", "rm", ""], &["h200"]),
        (&["duplicate", "--job", ""], &["nightly"]),
        (&["duplicate", "--from", "h"], &["h200"]),
        (&["--store", "h"], &["h200"]),
        (&["--store-profile", ""], &["eu"]),
        (&["cluster", "add", "--profile", ""], &["eu"]),
        (&["get", "--store", "/nothing/there", ""], &[]),
    ] {
        let found: Vec<String> = offered(&env, words)
            .into_iter()
            .filter(|word| !word.starts_with('-'))
            .collect();
        assert_eq!(found, expected, "{words:?}");
    }
    // A failed completion prints nothing and creates nothing.
    env.write("home/.config/store/config.toml", "stroe = 1\n");
    assert!(offered(&env, &["ls", "pro"]).is_empty());
    let lonely = environment!();
    offered(&lonely, &["get", "p"]);
    assert!(!lonely.path("home/.local").exists());
}

#[test]
fn the_manual_is_one_page_or_one_for_each_verb() {
    let env = environment!();
    let page = env.ok(["man"]);
    let sections: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix(".SH "))
        .collect();
    let expected = [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "OPTIONS",
        "\"OPTIONS OF EVERY VERB\"",
        "VERBS",
        "ENVIRONMENT",
        "FILES",
        "\"EXIT STATUS\"",
        "EXAMPLES",
        "\"SEE ALSO\"",
    ];
    assert_eq!(sections, expected, "{page}");
    assert_eq!(page.matches(".ie").count(), 1, "{page}");
    for words in [".TH store 1", "STORE_URL", "config.toml", "NO_COLOR"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    env.ok(["man", "pages"]);
    for page in [
        "pages/store.1",
        "pages/store-init.1",
        "pages/store-history.1",
        "pages/store-cluster-add.1",
    ] {
        let text = std::fs::read_to_string(env.path(page)).unwrap();
        assert!(text.contains(".SH \"EXIT STATUS\""), "{page}: {text}");
    }
}

#[test]
fn the_version_is_printed() {
    let env = environment!();
    assert_eq!(
        env.ok(["--version"]),
        concat!("store ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn help_lists_verbs_and_guides_and_prints_both() {
    let env = environment!();
    let list = env.ok(["help"]);
    assert!(list.starts_with("Data:\n  put "), "{list}");
    assert!(
        list.contains("Guides:\n  bucket       A store in a bucket\n"),
        "{list}"
    );
    let guide = env.ok(["help", "space"]);
    assert!(guide.starts_with("# Getting space back\n"), "{guide}");
    let told: serde_json::Value = serde_json::from_str(&env.ok(["help", "--json"])).unwrap();
    let topics = told["topics"].as_array().unwrap();
    assert!(topics.len() > 5, "{topics:?}");
    for topic in topics {
        let text = env.ok(["help", topic["topic"].as_str().unwrap()]);
        let title = topic["title"].as_str().unwrap();
        assert!(text.starts_with(&format!("# {title}\n")), "{topic}");
    }
    for verb in told["verbs"].as_array().unwrap() {
        let name = verb["verb"].as_str().unwrap();
        assert_eq!(env.ok(["help", name]), env.ok([name, "--help"]));
    }
}

#[test]
fn help_for_what_is_neither_verb_nor_guide_is_a_usage_error() {
    let env = environment!();
    check!(env, env.store(["help", "slrum"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: slrum: no such verb or guide
    hint: did you mean slurm? `store help` lists all of them
    ");
    check!(env, env.store(["help", "delete"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: delete: no such verb or guide
    hint: did you mean rm? `store help` lists all of them
    ");
    check!(env, env.store(["help", "cluster", "ad"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: ad: no such verb or guide
    hint: did you mean add? `store help` lists all of them
    ");
    check!(env, env.store(["help", "nothing-like-it"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: nothing-like-it: no such verb or guide
    hint: `store help` lists all of them
    ");
}

#[test]
fn help_needs_no_configuration() {
    let env = environment!();
    env.write("home/.config/store/config.toml", "stroe = 1\n");
    assert_eq!(env.store(["ls"]).code, Some(2));
    env.ok(["help", "reference"]);
    env.ok(["completions", "bash"]);
    env.ok(["man"]);
}

#[test]
fn errors_of_both_kinds_have_colours_by_one_rule() {
    let env = environment!();
    let said = |arguments: &[&str], variables: &[&str]| {
        let mut command = env.command(arguments);
        command.envs(variables.iter().map(|name| (*name, "1")));
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    let (ours, claps) = (
        &["ls", "project/x"] as &[&str],
        &["ls", "--nope"] as &[&str],
    );
    for error in [ours, claps] {
        let coloured = said(error, &["CLICOLOR_FORCE"]);
        assert!(
            coloured.starts_with("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m "),
            "{coloured:?}"
        );
        assert!(!said(error, &[]).contains('\u{1b}'));
        assert!(!said(error, &["NO_COLOR", "CLICOLOR_FORCE"]).contains('\u{1b}'));
        let machine = said(&[error, &["--json"]].concat(), &["CLICOLOR_FORCE"]);
        assert!(!machine.contains('\u{1b}'), "{machine:?}");
    }
    assert!(said(ours, &["CLICOLOR_FORCE"]).contains("\u{1b}[32mhint:\u{1b}[0m "));
}
