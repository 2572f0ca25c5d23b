//! Units of systemd and lines of crontab run the command that they were asked for.

use support::{Finished, environment};

#[test]
fn what_no_line_of_crontab_can_say_is_refused() {
    let env = environment!();
    let line = "two\n0 0 * * * lines";
    for store in ["a%b", line] {
        env.ok(["init", store]);
    }
    let percent = env.ok(["gc", "--crontab", "--store", "a%b"]);
    assert!(percent.contains("a\\%b"), "{percent}");
    for option in ["--crontab", "--systemd"] {
        let named = env.store(["gc", "--store", line, option]);
        assert_eq!(named.code, Some(2), "{named}");
        assert!(named.stderr.contains("two\\n0 0 * * * lines"), "{named}");
        assert!(named.stdout.is_empty(), "{named}");
        let mut around = env.command(["gc", "--store", "a%b", option]);
        around.env("XDG_CACHE_HOME", env.path(line));
        let around: Finished = around.output().unwrap().into();
        assert_eq!(around.code, Some(2), "{around}");
    }
}

#[test]
fn a_dry_run_is_nothing_to_run_unattended() {
    let env = environment!();
    env.ok(["init"]);
    env.ok(["init", "far"]);
    let duplicate = ["duplicate", "project/demo", "--from", "far", "--to", "far"];
    for verb in [&["gc"][..], &duplicate] {
        for option in ["--crontab", "--systemd"] {
            let refused = env.store([verb, &["-n", option]].concat());
            assert_eq!(refused.code, Some(2), "{refused}");
            assert!(
                refused.stdout.is_empty() && refused.stderr.contains("hint: leave it out"),
                "{refused}"
            );
        }
    }
}

#[test]
fn units_and_crontabs_run_the_same_command() {
    let env = environment!();
    env.ok(["init"]);
    let line = env.ok(["gc", "--crontab", "--keep-last", "3", "--refs", "team/*"]);
    assert!(line.starts_with("17 * * * * /"), "{line}");
    let store = env.path("home/.local/share/store");
    let expected = format!(
        " gc --keep-last 3 --refs 'team/*' --store {}\n",
        store.display()
    );
    assert!(line.ends_with(&expected), "{line}");
    // A relative path of a store becomes absolute.
    env.ok(["init", "near"]);
    let mut command = env.command(["gc", "--schedule=daily", "--crontab", "--max-size", "1TB"]);
    let finished: Finished = command.env("STORE_URL", "near").output().unwrap().into();
    let line = String::from_utf8(finished.stdout).unwrap();
    let expected = format!(
        " gc --max-size 1TB --store {}\n",
        env.path("near").display()
    );
    assert!(
        line.starts_with("17 3 * * * /") && line.ends_with(&expected),
        "{line}"
    );
    // The units are written to the named directory, and never to a missing one.
    std::fs::create_dir(env.path("units")).unwrap();
    env.ok(["gc", "--systemd", "units", "--store", "near"]);
    let service = std::fs::read_to_string(env.path("units/store-gc.service")).unwrap();
    let expected = format!(" gc --store {}\n", env.path("near").display());
    assert!(service.contains(&expected), "{service}");
    let timer = std::fs::read_to_string(env.path("units/store-gc.timer")).unwrap();
    assert!(timer.contains("\nOnCalendar=hourly\n"), "{timer}");
    // Not over those of another store, nor over what somebody has edited; the same ones may be written again.
    env.ok(["gc", "--systemd", "units", "--store", "near"]);
    env.ok(["init", "other"]);
    let refused = env.store(["gc", "--systemd", "units", "--store", "other"]);
    assert_eq!(refused.code, Some(5), "{refused}");
    assert!(
        refused
            .stderr
            .contains("units/store-gc.service: is there already"),
        "{refused}"
    );
    let kept = std::fs::read_to_string(env.path("units/store-gc.service")).unwrap();
    assert_eq!(kept, service);
    let finished = env.store(["gc", "--systemd", "nowhere"]);
    assert_eq!(finished.code, Some(2), "{finished}");
    let finished = env.store(["gc", "--schedule", "daily"]);
    assert_eq!(finished.code, Some(2), "{finished}");
    assert!(
        env.ok(["gc", "--systemd"])
            .contains("\nOnCalendar=hourly\n")
    );
}
