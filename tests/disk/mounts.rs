//! File systems for tests: images on loop devices, and tmpfs. Dropping the value unmounts them.
//!
//! Needs root. A test that cannot mount fails; it is not skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// `FS_IOC_SHUTDOWN` with `FSOP_GOING_FLAGS_NOLOGFLUSH`: nothing more is written to the disk. ext4 and XFS simulate
/// power cuts with it in their own tests.
const CUT_POWER: &str = "import fcntl, os, struct, sys; \
     fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";
/// Attempts to unmount, with a pause between, since a killed process may hold a file for a moment.
const UNMOUNT_TRIES: u32 = 100;

/// A mounted file system.
pub(crate) struct Mount {
    room: TempDir,
    options: &'static str,
}

impl Mount {
    /// An ext4 file system of this many MiB, with additional arguments for mkfs.
    pub(crate) fn ext4(mebibytes: u64, make: &[&str], options: &'static str) -> Self {
        Self::on_image(mebibytes, "mkfs.ext4", make, options)
    }

    /// An XFS file system; its tools require at least 300 MiB.
    pub(crate) fn xfs(options: &'static str) -> Self {
        Self::on_image(512, "mkfs.xfs", &[], options)
    }

    /// A btrfs file system; its tools require at least 109 MiB.
    pub(crate) fn btrfs(options: &'static str) -> Self {
        Self::on_image(256, "mkfs.btrfs", &[], options)
    }

    /// A file system in memory.
    pub(crate) fn tmpfs(options: &'static str) -> Self {
        let mount = Self::unmounted(options);
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(mount.path()));
        mount
    }

    /// The mount point.
    pub(crate) fn path(&self) -> PathBuf {
        self.room.path().join("mounted")
    }

    /// Loses everything that is not durable. Afterwards every call fails until [`Self::again`].
    pub(crate) fn cut_power(&self) {
        run(Command::new("python3")
            .args(["-c", CUT_POWER])
            .arg(self.path()));
    }

    /// Unmounts and mounts again, as a machine does after a power cut.
    pub(crate) fn again(&self) {
        unmount(&self.path()).unwrap();
        self.wait_until_gone();
        self.mount();
    }

    /// Keeps a copy of all that is on the disk, for [`Self::set_back`].
    pub(crate) fn keep_copy(&self) {
        unmount(&self.path()).unwrap();
        self.wait_until_gone();
        std::fs::copy(self.image(), self.room.path().join("copy")).unwrap();
        self.mount();
    }

    /// Brings that copy back.
    pub(crate) fn set_back(&self) {
        unmount(&self.path()).unwrap();
        self.wait_until_gone();
        std::fs::copy(self.room.path().join("copy"), self.image()).unwrap();
        self.mount();
    }

    /// Waits until no mount namespace of another process holds the file system any more.
    fn wait_until_gone(&self) {
        for _ in 0..UNMOUNT_TRIES {
            let losetup = Command::new("/usr/sbin/losetup")
                .arg("--associated")
                .arg(self.image())
                .output()
                .unwrap();
            if losetup.status.success() && losetup.stdout.is_empty() {
                return;
            }
            self.unmount_elsewhere();
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{}: somebody keeps it mounted", self.path().display());
    }

    /// Unmounts it in the mount namespaces that were made while it was mounted. Their processes may live for long.
    fn unmount_elsewhere(&self) {
        let path = self.path().display().to_string();
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let mounts = std::fs::read_to_string(process.path().join("mountinfo"));
            if mounts.is_ok_and(|mounts| mounts.contains(&path)) {
                let namespace = format!("--mount={}", process.path().join("ns/mnt").display());
                // The process may have ended meanwhile.
                drop(
                    Command::new("nsenter")
                        .args([&namespace, "umount", &path])
                        .output(),
                );
            }
        }
    }

    /// Changes the options while it is mounted.
    pub(crate) fn remount(&self, options: &str) {
        run(Command::new("mount")
            .args(["-o", &format!("remount,{options}")])
            .arg(self.path()));
    }

    fn on_image(mebibytes: u64, program: &str, make: &[&str], options: &'static str) -> Self {
        let mount = Self::unmounted(options);
        let image = std::fs::File::create(mount.image()).unwrap();
        image.set_len(mebibytes << 20).unwrap();
        run(Command::new(format!("/usr/sbin/{program}"))
            .arg("-q")
            .args(make)
            .arg(mount.image()));
        mount.mount();
        mount
    }

    fn unmounted(options: &'static str) -> Self {
        let room = tempfile::tempdir().unwrap();
        std::fs::create_dir(room.path().join("mounted")).unwrap();
        Self { room, options }
    }

    fn image(&self) -> PathBuf {
        self.room.path().join("image")
    }

    fn mount(&self) {
        run(Command::new("mount")
            .args(["-o", &format!("loop,{}", self.options)])
            .arg(self.image())
            .arg(self.path()));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.path()) {
            eprintln!("{}: {error}", self.path().display());
        }
    }
}

fn unmount(path: &Path) -> Result<(), String> {
    let mut said = String::new();
    for _ in 0..UNMOUNT_TRIES {
        let output = Command::new("umount").arg(path).output().unwrap();
        if output.status.success() {
            return Ok(());
        }
        said = String::from_utf8_lossy(&output.stderr).into_owned();
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Err(said)
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {said}(these tests mount file systems, which needs root)"
    );
}
