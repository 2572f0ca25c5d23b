//! Runs whose cache somebody exchanged: in the directory of a group, others may rename what is in it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use support::{Finished, TestEnvironment, environment, with_mounts};

use crate::run::{REF, newest, run};

/// In the first run of a project, nothing but the run itself knows the directory.
#[test]
fn another_directory_in_the_place_of_a_new_cache_is_not_saved() {
    let env = environment!();
    env.write("private/secret", "s");
    for other in ["mkdir $DIR", "ln -s $PRIVATE $DIR"] {
        let script = format!(
            "DIR=$STORE_PROJECT_CACHE_DIR; PRIVATE={}; echo a > $DIR/a; mv $DIR elsewhere; {other}",
            env.path("private").display()
        );
        let told = env.store(run(&[], &script));
        assert_eq!(told.code, Some(5), "{told}");
        assert!(told.stderr.contains("is another directory"), "{told}");
        assert!(told.stderr.contains("move away what is in"), "{told}");
        assert_eq!(env.store(["ls", REF]).code, Some(3));
        let place = env.path("base/project");
        match place.is_symlink() {
            true => fs::remove_file(&place).unwrap(),
            false => fs::remove_dir(&place).unwrap(),
        }
        fs::rename(env.path("elsewhere"), &place).unwrap();
        if other.starts_with("ln") {
            env.ok(["save", "--pending"]);
            assert_eq!(newest(&env, REF), ["a=a"]);
        } else {
            fs::remove_dir_all(env.path("base")).unwrap();
            env.store(["save", "--forget", place.to_str().unwrap()]);
        }
    }
}

/// The list of unsaved directories knows the directory, not only its path: in a group's directory, others may rename.
#[test]
fn what_comes_to_the_place_of_an_unsaved_cache_is_not_saved() {
    let env = environment!();
    env.write("private/secret", "s");
    let place = env.path("base/project");
    killed(&env);
    fs::rename(&place, env.path("away")).unwrap();
    std::os::unix::fs::symlink(env.path("private"), &place).unwrap();
    for (words, code) in [(vec!["save", "--pending"], 6), (run(&[], "true"), 5)] {
        let refused = env.store(words);
        assert_eq!(refused.code, Some(code), "{refused}");
        let told = "another directory, an older copy, or a link to one is in the place";
        let is_named = refused.stderr.contains(told);
        assert!(is_named || code == 5, "{refused}");
    }
    assert_eq!(env.store(["ls", REF]).code, Some(3));
    fs::remove_file(&place).unwrap();
    fs::rename(env.path("away"), &place).unwrap();
    env.ok(["save", "--pending"]);
    assert_eq!(newest(&env, REF), ["m=m"]);
}

#[test]
fn a_cache_that_was_removed_is_only_replaced_by_a_directory_of_the_command() {
    let env = environment!();
    env.write("private/secret", "s");
    let private = env.path("private").display().to_string();
    let script =
        format!("rm -rf $STORE_PROJECT_CACHE_DIR; ln -s {private} $STORE_PROJECT_CACHE_DIR");
    let refused = env.store(run(&[], &script));
    assert_eq!(refused.code, Some(5), "{refused}");
    assert_eq!(env.store(["ls", REF]).code, Some(3));
    fs::remove_file(env.path("base/project")).unwrap();
    let script = "D=$STORE_PROJECT_CACHE_DIR; rm -rf $D; mkdir $D; echo b > $D/b";
    env.ok(run(&[], script));
    assert_eq!(newest(&env, REF), ["b=b"]);
}

/// Makes a base in which others may rename.
pub(crate) fn open_base(env: &TestEnvironment) {
    fs::create_dir(env.path("base")).unwrap();
    fs::set_permissions(env.path("base"), Permissions::from_mode(0o777)).unwrap();
}

/// A run that leaves `m` and is killed.
fn killed(env: &TestEnvironment) {
    let killed = env.store(run(
        &[],
        "echo m > $STORE_PROJECT_CACHE_DIR/m; kill -9 $PPID",
    ));
    assert_ne!(killed.code, Some(0), "{killed}");
}

/// A first run that is killed when it has left `m`. Others may rename in the directory above its cache.
fn killed_in_a_group() -> TestEnvironment {
    let env = environment!();
    open_base(&env);
    killed(&env);
    env
}

/// A directory of this user may be younger than the cache and not be a cache.
#[test]
fn what_others_can_move_to_the_place_of_an_unsaved_cache_is_not_saved() {
    let env = killed_in_a_group();
    let place = env.path("base/project");
    env.write("base/private/diary", "d");
    fs::rename(&place, env.path("base/away")).unwrap();
    fs::rename(env.path("base/private"), &place).unwrap();
    for (words, code) in [(vec!["save", "--pending"], 6), (run(&[], "true"), 5)] {
        let refused = env.store(words);
        assert_eq!(refused.code, Some(code), "{refused}");
    }
    assert_eq!(env.store(["ls", REF]).code, Some(3));
    fs::rename(&place, env.path("base/private")).unwrap();
    fs::rename(env.path("base/away"), &place).unwrap();
    env.ok(["save", "--pending"]);
    assert_eq!(newest(&env, REF), ["m=m"]);
}

/// The same while the run is there; and what its command makes again is saved by hand.
#[test]
fn what_a_command_makes_again_where_others_may_rename_is_saved_by_hand() {
    let env = environment!();
    open_base(&env);
    let script = "D=$STORE_PROJECT_CACHE_DIR; rm -rf $D; mkdir $D; echo b > $D/b";
    let refused = env.store(run(&[], script));
    assert_eq!(refused.code, Some(5), "{refused}");
    let place = env.path("base/project").display().to_string();
    for told in [
        format!("`store save {place} {REF} --base N`"),
        format!("`store save --forget {place}`"),
    ] {
        assert!(refused.stderr.contains(&told), "{told}: {refused}");
    }
    env.ok(["save", &place, REF, "--base", "0"]);
    assert_eq!(newest(&env, REF), ["b=b"]);
    let none = env.ok(["save", "--pending"]);
    assert!(!none.contains("another directory"), "{none}");
}

/// What was in the removed directory is removed by the save, as with files that a command removes one by one. What others
/// saved meanwhile stays.
#[test]
fn what_a_command_makes_again_is_of_the_version_that_it_was_given() {
    let env = environment!();
    env.ok(run(
        &[],
        "echo a > $STORE_PROJECT_CACHE_DIR/a; echo b > $STORE_PROJECT_CACHE_DIR/b",
    ));
    env.write("others/c", "c");
    let program = env.command([""; 0]);
    let again = format!(
        "{} save {} {REF} --base 0 >&2; D=$STORE_PROJECT_CACHE_DIR; rm -rf $D; mkdir $D; echo a > $D/a",
        program.get_program().display(),
        env.path("others").display(),
    );
    let saved = env.store(run(&[], &again));
    assert_eq!(saved.code, Some(0), "{saved}");
    assert_eq!(newest(&env, REF), ["a=a", "c=c"]);

    // The store is away when the run ends.
    let (store, away) = (env.path("home/.local/share/store"), env.path("away"));
    let script = format!(
        "mv {} {}; D=$STORE_PROJECT_CACHE_DIR; rm -rf $D; mkdir $D; echo d > $D/d",
        store.display(),
        away.display()
    );
    let kept = env.store(run(&[], &script));
    assert_eq!(kept.code, Some(1), "{kept}");
    fs::rename(&away, &store).unwrap();
    let saved = env.store(["save", "--pending"]);
    assert_eq!(saved.code, Some(0), "{saved}");
    assert!(!saved.stderr.contains("warning"), "{saved}");
    assert_eq!(newest(&env, REF), ["d=d"]);
    // A copy has the attributes of the directory, too.
    let script =
        "D=$STORE_PROJECT_CACHE_DIR; cp -a $D copy; rm -rf $D; mv copy $D; rm $D/d; echo e > $D/e";
    env.ok(run(&[], script));
    assert_eq!(newest(&env, REF), ["e=e"]);
}

/// A tree of a version is made beside its place, and is another directory than the empty one before.
#[test]
fn a_killed_run_with_a_version_is_saved_where_others_may_rename() {
    let env = environment!();
    env.ok(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
    for (number, words) in [vec!["save", "--pending"], run(&[], "true")]
        .into_iter()
        .enumerate()
    {
        fs::remove_dir_all(env.path("base")).unwrap();
        open_base(&env);
        let script = format!("echo m > $STORE_PROJECT_CACHE_DIR/m{number}; kill -9 $PPID");
        let killed = env.store(run(&[], &script));
        assert_ne!(killed.code, Some(0), "{killed}");
        let saved = env.store(words);
        assert_eq!(saved.code, Some(0), "{saved}");
        assert!(!saved.stderr.contains("warning"), "{saved}");
        assert!(newest(&env, REF).contains(&format!("m{number}=m")));
    }
}

/// Another project in the same base leaves a directory that is as much this user's.
#[test]
fn the_cache_of_another_project_in_the_place_is_not_saved_to_the_first_one() {
    for script in ["true", "kill -9 $PPID"] {
        let env = environment!();
        killed(&env);
        fs::rename(env.path("base/project"), env.path("base/away")).unwrap();
        let script = format!("echo u > $STORE_PROJECT_CACHE_DIR/u; {script}");
        env.store([
            "run",
            "--project",
            "u",
            "--base",
            "base",
            "--",
            "sh",
            "-c",
            &script,
        ]);
        let refused = env.store(["save", "--pending"]);
        assert_eq!(refused.code, Some(6), "{refused}");
        let told = "another directory, an older copy, or a link to one";
        assert!(refused.stderr.contains(told), "{refused}");
        assert_eq!(env.store(["ls", REF]).code, Some(3));
        assert_eq!(newest(&env, "project/u/cache"), ["u=u"]);
    }
}

/// An empty directory says nothing of what was in the cache.
#[test]
fn work_is_not_forgotten_for_an_empty_directory_in_its_place() {
    let env = killed_in_a_group();
    let place = env.path("base/project");
    fs::rename(&place, env.path("base/away")).unwrap();
    fs::create_dir(&place).unwrap();
    let refused = env.store(["save", "--pending"]);
    assert_eq!(refused.code, Some(6), "{refused}");
    let told = env.store(run(&[], "true"));
    assert_eq!(told.code, Some(0), "{told}");
    assert!(told.stderr.contains("is not here any more"), "{told}");
}

#[test]
fn what_is_mounted_over_an_unsaved_cache_is_not_saved() {
    let env = environment!();
    killed(&env);
    let mounts = "mount -t tmpfs tmpfs base/project && touch base/project/x";
    let save = env.command(["save", "--pending"]);
    let refused: Finished = with_mounts(mounts, &save).output().unwrap().into();
    assert_eq!(refused.code, Some(6), "{refused}");
    env.ok(["save", "--pending"]);
    assert_eq!(newest(&env, REF), ["m=m"]);
}

/// The list is of directories, not of paths, whoever may rename.
#[test]
fn another_directory_of_the_same_user_is_not_saved_from_the_list() {
    let env = environment!();
    let script = "D=$STORE_PROJECT_CACHE_DIR; mv $D away; mkdir $D; echo n > $D/n; kill -9 $PPID";
    let killed = env.store(run(&[], script));
    assert_ne!(killed.code, Some(0), "{killed}");
    for (words, code) in [(vec!["save", "--pending"], 6), (run(&[], "true"), 5)] {
        let refused = env.store(words);
        assert_eq!(refused.code, Some(code), "{refused}");
        assert!(refused.stderr.contains("--forget"), "{refused}");
    }
    assert_eq!(env.store(["ls", REF]).code, Some(3));
}

/// A run that sees its command make its cache again says so on the list, for the case that it is killed.
#[test]
fn what_a_command_made_again_is_saved_after_a_kill() {
    for words in [vec!["save", "--pending"], run(&[], "true")] {
        let env = environment!();
        env.ok(run(&[], "echo a > $STORE_PROJECT_CACHE_DIR/a"));
        let script = "D=$STORE_PROJECT_CACHE_DIR; rm -rf $D; mkdir $D; echo n > $D/n; sleep 3; kill -9 $PPID";
        let killed = env.store(run(&[], script));
        assert_ne!(killed.code, Some(0), "{killed}");
        env.ok(words);
        assert_eq!(newest(&env, REF), ["n=n"]);
    }
}

/// A compile cache that the command makes is not there when the run begins.
#[test]
fn compile_caches_of_others_are_not_pushed() {
    let script = "mkdir -p $TRITON_CACHE_DIR/KEY; echo '{}' > $TRITON_CACHE_DIR/KEY/__grp__add.json; \
                  echo $TRITON_CACHE_DIR";
    for was_there in [false, true] {
        let env = environment!();
        open_base(&env);
        let killed = env.store(run(&[], &format!("{script}; kill -9 $PPID")));
        assert_ne!(killed.code, Some(0), "{killed}");
        let place = String::from_utf8(killed.stdout.clone()).unwrap();
        let place = std::path::Path::new(place.trim());
        assert!(place.starts_with(env.path("base")), "{}", place.display());
        if was_there {
            // The next run finds it, and is killed too.
            fs::rename(place.join("KEY"), env.path("KEY")).unwrap();
            let killed = env.store(run(&[], &format!("{script}; kill -9 $PPID")));
            assert_ne!(killed.code, Some(0), "{killed}");
        }
        let other = env.path("base/other");
        fs::rename(place, &other).unwrap();
        fs::create_dir_all(place.join("KEY")).unwrap();
        fs::write(place.join("KEY/__grp__add.json"), "{}").unwrap();
        std::os::unix::fs::chown(place, Some(65534), None).unwrap();
        let refused = env.store(["save", "--pending"]);
        assert_eq!(refused.code, Some(6), "{refused}");
        let told = "another directory, an older copy, or a link to one";
        assert!(refused.stderr.contains(told), "{refused}");
        // Nor does the next run push it.
        let warned = env.store(run(&[], "true"));
        assert_eq!(warned.code, Some(0), "{warned}");
        assert!(warned.stderr.contains(told), "{warned}");
        assert_eq!(env.store(["ls", "project/llama/triton"]).code, Some(3));
        fs::remove_dir_all(place).unwrap();
        fs::rename(&other, place).unwrap();
        env.ok(["save", "--pending"]);
        env.ok(["ls", "project/llama/triton:KEY"]);
    }
}

/// Programs clear their compile caches.
#[test]
fn a_compile_cache_that_the_command_makes_again_is_pushed() {
    let env = environment!();
    open_base(&env);
    let make = |key: &str| {
        format!(
            "rm -rf $TRITON_CACHE_DIR; mkdir -p $TRITON_CACHE_DIR/{key}; echo '{{}}' > $TRITON_CACHE_DIR/{key}/__grp__add.json"
        )
    };
    for key in ["ONE", "TWO"] {
        let done = env.store(run(&[], &make(key)));
        assert_eq!(done.code, Some(0), "{done}");
        assert!(!done.stderr.contains("warning"), "{done}");
        env.ok(["ls", &format!("project/llama/triton:{key}")]);
    }
}

/// A link of this host leads others astray: neither is it saved, nor is anything pulled or pushed through it.
#[test]
fn a_link_in_the_place_of_a_compile_cache_stays_here() {
    let env = environment!();
    fs::create_dir(env.path("fast")).unwrap();
    let script = "echo a > $STORE_PROJECT_CACHE_DIR/a; rm -rf $TRITON_CACHE_DIR; ln -s $PWD/fast $TRITON_CACHE_DIR; \
                  mkdir -p fast/KEY; echo '{}' > fast/KEY/__grp__add.json";
    for _ in 0..2 {
        let done = env.store(run(&[], script));
        assert_eq!(done.code, Some(0), "{done}");
        assert!(done.stderr.contains("is a symlink"), "{done}");
        assert_eq!(newest(&env, REF), ["a=a"]);
        assert_eq!(env.store(["ls", "project/llama/triton"]).code, Some(3));
    }
}

/// Whoever may write to a project can put a link into its cache that leads to what only others can read.
#[test]
fn nothing_is_pushed_or_pulled_through_a_link_that_came_with_the_cache() {
    let env = environment!();
    env.write("private/KEY/__grp__add.json", "{}");
    fs::create_dir(env.path("planted")).unwrap();
    std::os::unix::fs::symlink(env.path("private"), env.path("planted/triton")).unwrap();
    env.write("planted/f", "f");
    env.ok(["put", "planted", REF, "--keep-absolute-links"]);
    env.write("theirs/OTHER/__grp__add.json", "{}");
    env.ok([
        "cache",
        "--profile",
        "triton",
        "push",
        "theirs",
        "project/llama/triton",
    ]);
    let done = env.store(run(&[], "ls -d $TRITON_CACHE_DIR/KEY"));
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains("is a symlink"), "{done}");
    assert_eq!(env.store(["ls", "project/llama/triton:KEY"]).code, Some(3));
    assert!(!env.path("private/OTHER").exists());
}

/// What no save takes is in the place: then, too, it is another directory.
#[test]
fn a_directory_with_nothing_but_what_is_left_out_hides_no_work() {
    let make = "mkdir -p base/project/triton";
    let env = environment!();
    open_base(&env);
    let script = format!("echo m > $STORE_PROJECT_CACHE_DIR/m; mv base/project base/away; {make}");
    let refused = env.store(run(&[], &script));
    assert_eq!(refused.code, Some(5), "{refused}");
    for (words, code) in [(vec!["save", "--pending"], 6), (run(&[], "true"), 5)] {
        let refused = env.store(words);
        assert_eq!(refused.code, Some(code), "{refused}");
    }
    fs::remove_dir_all(env.path("base/project")).unwrap();
    fs::rename(env.path("base/away"), env.path("base/project")).unwrap();
    env.ok(["save", "--pending"]);
    assert_eq!(newest(&env, REF), ["m=m"]);
}

/// The compile caches are in the cache of the project.
#[test]
fn compile_caches_of_an_exchanged_project_are_not_pushed() {
    let env = environment!();
    open_base(&env);
    let script = "mkdir -p $TRITON_CACHE_DIR/KEY; mv base/project base/away; \
                  mkdir -p $TRITON_CACHE_DIR/KEY; echo '{}' > $TRITON_CACHE_DIR/KEY/__grp__add.json; \
                  chown -R 65534 base/project";
    let refused = env.store(run(&[], script));
    assert_eq!(refused.code, Some(5), "{refused}");
    assert_eq!(env.store(["ls", "project/llama/triton"]).code, Some(3));
}
