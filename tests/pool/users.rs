//! Other users of the host: nothing that they plant is used. The victim is root or an ordinary user; the attacker is
//! another user.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::world::{Mount, REF, World, assert_same, files_below, set_mode, shell};

pub(crate) const VICTIMS: [u32; 2] = [0, 1001];
pub(crate) const MALLORY: u32 = 1002;

/// A store that everybody may read, and a scratch disk that everybody may write to.
pub(crate) struct Host {
    pub(crate) world: World,
    scratch: Mount,
    pub(crate) victim: u32,
}

impl Host {
    pub(crate) fn new(seed: u64, victim: u32) -> Self {
        let world = World::with_tree(seed);
        let root = world.env.root();
        shell(&format!("chmod -R a+rX '{}'", root.display()));
        let scratch = Mount::new(world.path("scratch"), "-t tmpfs -o mode=1777 tmpfs");
        let host = Self {
            world,
            scratch,
            victim,
        };
        for directory in ["homes", "homes/victim"] {
            fs::create_dir(host.world.path(directory)).unwrap();
        }
        host.give(&host.world.path("homes/victim"), victim);
        fs::create_dir(host.at("job")).unwrap();
        host.give(&host.at("job"), victim);
        host
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.scratch.0.join(name)
    }

    /// The pool that the victim uses for destinations on the scratch disk.
    pub(crate) fn beside(&self) -> PathBuf {
        self.at(&format!(".store-pool-{}", self.victim))
    }

    pub(crate) fn give(&self, path: &Path, user: u32) {
        shell(&format!("chown -hR {user}:{user} '{}'", path.display()));
    }

    /// The command, run by the victim.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.world.env.command(arguments);
        command
            .uid(self.victim)
            .gid(self.victim)
            .env("HOME", self.world.path("homes/victim"))
            .env("STORE_URL", self.world.path("home/.local/share/store"));
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Materializes to the scratch disk, and asserts that the result is right, whatever is planted there. Returns the
    /// output.
    pub(crate) fn makes(&self, name: &str) -> String {
        let destination = self.at(name);
        let done = self.run(&["materialize", REF, destination.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(0), "{said}");
        assert_same(&self.world.path("source"), &destination);
        for file in files_below(&destination) {
            let found = fs::symlink_metadata(&file).unwrap();
            assert_eq!(found.uid(), self.victim, "{}", file.display());
        }
        said
    }

    /// Asserts that materialize is refused. Returns the reason.
    fn refused(&self, options: &[&str]) -> String {
        let destination = self.at("job/refused");
        let arguments = [
            &["materialize", REF, destination.to_str().unwrap()],
            options,
        ]
        .concat();
        let done = self.run(&arguments);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(said.contains("hint: "), "{said}");
        assert!(!destination.exists());
        said
    }

    /// Plants a pool that looks like the victim's own, with files of the right names and wrong bytes.
    fn plant(&self, pool: &Path, owner: u32) {
        self.world
            .env
            .ok(["materialize", "--prefetch", "--pool", "honest", REF]);
        fs::rename(self.world.path("honest"), self.world.path("planted")).unwrap();
        shell(&format!(
            "mv '{}' '{}'",
            self.world.path("planted").display(),
            pool.display()
        ));
        for file in files_below(&pool.join("files")) {
            spoil(&file);
        }
        self.give(pool, owner);
    }
}

/// Replaces the bytes by others, and keeps size, mode and time.
fn spoil(file: &Path) {
    let before = fs::metadata(file).unwrap();
    fs::write(file, vec![b'E'; usize::try_from(before.len()).unwrap()]).unwrap();
    let opened = fs::File::options().write(true).open(file).unwrap();
    opened.set_modified(before.modified().unwrap()).unwrap();
    fs::set_permissions(file, before.permissions()).unwrap();
}

#[test]
fn a_planted_pool_hands_out_nothing() {
    for (seed, victim) in (300..).zip(VICTIMS) {
        let host = Host::new(seed, victim);
        host.plant(&host.beside(), MALLORY);
        shell(&format!("chmod -R a+w '{}'", host.beside().display()));
        for file in files_below(&host.beside().join("files")) {
            set_mode(&file, 0o444);
        }
        let said = host.makes("job/out");
        assert!(
            said.contains(&format!(
                "belongs to user {MALLORY}, expected user {victim}"
            )),
            "{said}"
        );
        let named = host.refused(&["--pool", host.beside().to_str().unwrap()]);
        assert!(named.contains("name one of your own"), "{named}");
        // Nothing in it was adopted or changed.
        assert_eq!(files_below(&host.beside().join("files")).len(), 5);
    }
}

#[test]
fn a_pool_that_others_may_write_to_is_not_used() {
    for (seed, mode) in [(302, 0o777), (303, 0o775), (304, 0o1777)] {
        let host = Host::new(seed, 1001);
        host.plant(&host.beside(), 1001);
        set_mode(&host.beside(), mode);
        let said = host.makes("job/out");
        assert!(said.contains("others may write to it"), "{said}");
        // A pool whose directories are open to others is refused, too.
        set_mode(&host.beside(), 0o755);
        set_mode(&host.beside().join("files"), mode);
        let named = host.refused(&["--pool", host.beside().to_str().unwrap()]);
        assert!(named.contains("files: others may write to it"), "{named}");
    }
}

#[test]
fn what_others_put_into_a_pool_counts_as_not_there() {
    for (seed, victim) in (305..).zip(VICTIMS) {
        let host = Host::new(seed, victim);
        host.makes("job/first");
        let pool = host.beside();
        let files = files_below(&pool.join("files"));
        assert_eq!(files.len(), 5);
        for file in &files {
            // The trees' own links keep their bytes.
            let bytes = fs::read(file).unwrap();
            let before = fs::metadata(file).unwrap();
            fs::remove_file(file).unwrap();
            fs::write(file, vec![b'E'; bytes.len()]).unwrap();
            lchown(file, Some(MALLORY), Some(MALLORY)).unwrap();
            let opened = fs::File::options().write(true).open(file).unwrap();
            opened.set_modified(before.modified().unwrap()).unwrap();
            fs::set_permissions(file, before.permissions()).unwrap();
        }
        host.makes("job/second");
        for file in files {
            assert_eq!(fs::metadata(file).unwrap().uid(), victim);
        }
        // A directory of the attacker is not opened at all.
        let shard = files_below(&pool.join("files"))[0]
            .parent()
            .unwrap()
            .to_owned();
        // Even if its mode would permit that.
        set_mode(&shard, 0o755);
        host.give(&shard, MALLORY);
        let said = host.refused(&["--pool", pool.to_str().unwrap()]);
        assert!(
            said.contains(&format!("belongs to user {MALLORY}")),
            "{said}"
        );
    }
}

#[test]
fn claims_of_others_keep_nobody_waiting() {
    let host = Host::new(307, 1001);
    host.makes("job/first");
    let pool = host.beside();
    let claims: Vec<fs::File> = files_below(&pool.join("files"))
        .iter()
        .map(|file| {
            let claim = pool.join("claims").join(file.file_name().unwrap());
            fs::write(&claim, "{}").unwrap();
            host.give(&claim, MALLORY);
            fs::remove_file(file).unwrap();
            fs::File::options().write(true).open(claim).unwrap()
        })
        .collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The claims' owner beats as long as anybody waits.
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                for claim in &claims {
                    claim.set_modified(SystemTime::now()).unwrap();
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        host.makes("job/second");
        is_done.store(true, Ordering::Relaxed);
    });
    let left = |name: &str| fs::read_dir(pool.join(name)).unwrap().count();
    assert_eq!((left("claims"), left("owners"), left("tmp")), (0, 0, 0));
}

#[test]
fn a_symlink_of_another_user_leads_to_no_pool() {
    for (seed, victim) in (316..).zip(VICTIMS) {
        let host = Host::new(seed, victim);
        fs::create_dir(host.at("job/real")).unwrap();
        host.give(&host.at("job/real"), victim);
        for (name, maker) in [("theirs", MALLORY), ("own", victim)] {
            symlink(host.at("job"), host.at(name)).unwrap();
            lchown(host.at(name), Some(maker), Some(maker)).unwrap();
        }
        // As a component and as the pool itself, by a flag and by the configuration.
        let through = host.at("theirs/real");
        let said = host.refused(&["--pool", through.to_str().unwrap()]);
        assert!(
            said.contains("a symlink that another user could have made"),
            "{said}"
        );
        let config = host.world.path("homes/victim/.config/store");
        fs::create_dir_all(&config).unwrap();
        fs::write(
            config.join("config.toml"),
            format!("[pool]\npath = {through:?}\n"),
        )
        .unwrap();
        shell(&format!(
            "chmod -R a+rX '{}'",
            host.world.path("homes").display()
        ));
        let said = host.refused(&[]);
        assert!(
            said.contains("a symlink that another user could have made"),
            "{said}"
        );
        fs::remove_file(config.join("config.toml")).unwrap();
        symlink(host.at("job/real"), host.beside()).unwrap();
        lchown(host.beside(), Some(MALLORY), Some(MALLORY)).unwrap();
        let said = host.makes("job/out");
        assert!(
            said.contains("a symlink that another user could have made"),
            "{said}"
        );
        assert_eq!(fs::read_dir(host.at("job/real")).unwrap().count(), 0);
        // The victim's own symlink is as good as the directory, if nobody else can replace it.
        let own = host.at("own/real");
        let done = host.run(&[
            "materialize",
            "--prefetch",
            "--pool",
            own.to_str().unwrap(),
            REF,
        ]);
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        assert!(host.at("job/real/files").is_dir());
        set_mode(&host.scratch.0, 0o777);
        let said = host.refused(&["--pool", own.to_str().unwrap()]);
        assert!(
            said.contains("a symlink that another user could have made"),
            "{said}"
        );
    }
}

#[test]
fn a_pool_that_was_swapped_is_not_used() {
    for (seed, victim) in (318..).zip(VICTIMS) {
        let host = Host::new(seed, victim);
        // Here everybody may rename everything.
        set_mode(&host.scratch.0, 0o777);
        host.makes("job/first");
        fs::rename(host.beside(), host.at("away")).unwrap();
        host.plant(&host.beside(), MALLORY);
        let said = host.makes("job/second");
        assert!(
            said.contains(&format!("belongs to user {MALLORY}")),
            "{said}"
        );
        // A directory of the victim with this name is not a pool, and stays as it is.
        fs::rename(host.beside(), host.at("theirs")).unwrap();
        fs::create_dir(host.beside()).unwrap();
        fs::write(host.beside().join("thesis"), "years").unwrap();
        host.give(&host.beside(), victim);
        let said = host.makes("job/third");
        assert!(said.contains("is not empty and is no pool"), "{said}");
        assert_eq!(fs::read_dir(host.beside()).unwrap().count(), 1);
    }
}

#[test]
fn nobody_is_led_onto_what_is_precious() {
    for (seed, victim) in (320..).zip(VICTIMS) {
        let host = Host::new(seed, victim);
        host.makes("job/out");
        let home = host.world.path("homes/victim");
        fs::create_dir(home.join("kept")).unwrap();
        fs::write(home.join("kept/file"), "kept").unwrap();
        host.give(&home.join("kept"), victim);
        for (name, target) in [
            ("home", home.clone()),
            ("above", home.parent().unwrap().to_path_buf()),
            ("pool", host.beside()),
            ("store", host.world.path("home/.local/share/store")),
            ("kept", home.join("kept")),
        ] {
            let led = host.at(name);
            symlink(&target, &led).unwrap();
            lchown(&led, Some(MALLORY), Some(MALLORY)).unwrap();
            let led = led.to_str().unwrap();
            let done = host.run(&["materialize", "--force", "--exact", REF, led]);
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            // A link to anything else may be replaced itself; its target stays.
            let codes: &[i32] = if name == "kept" { &[0, 1] } else { &[5] };
            assert!(
                codes.contains(&done.status.code().unwrap()),
                "{name}: {said}"
            );
        }
        assert_eq!(fs::read(home.join("kept/file")).unwrap(), b"kept");
        host.makes("job/out");
        host.world.env.ok(["verify"]);
    }
}

#[test]
fn rooms_of_others_are_not_swept_and_do_not_lead_elsewhere() {
    for (seed, victim) in (330..).zip(VICTIMS) {
        let host = Host::new(seed, victim);
        let kept = host.world.path("homes/victim/kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "kept").unwrap();
        host.give(&kept, victim);
        // A room like that of a dead process of the victim, but owned by another user.
        let room = host.at("job/.store-get-0123");
        fs::create_dir(&room).unwrap();
        let owner =
            "{\"pid\":999999,\"started\":1,\"boot\":\"b\",\"namespace\":\"n\",\"host\":\"h\"}";
        fs::write(
            room.join("room"),
            format!("{{\"room\":\"0123\",\"owner\":{owner}}}"),
        )
        .unwrap();
        symlink(&kept, room.join("tree")).unwrap();
        shell(&format!("touch -h -d 2001-01-01 '{}/room'", room.display()));
        host.give(&room, MALLORY);
        let out = host.at("job/got");
        let done = host.run(&["get", REF, out.to_str().unwrap()]);
        assert!(done.status.success(), "{done:?}");
        assert!(room.join("room").exists());
        // The same room owned by the victim is removed, without following links in it.
        host.give(&room, victim);
        let out = host.at("job/again");
        let done = host.run(&["get", REF, out.to_str().unwrap()]);
        assert!(done.status.success(), "{done:?}");
        assert!(!room.exists());
        assert_eq!(fs::read(kept.join("file")).unwrap(), b"kept");
    }
}
