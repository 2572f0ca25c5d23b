//! The sweep: removes what dead processes left.
//!
//! The process table says which processes of this host, boot and namespace have died. Any other owner counts as dead if
//! it has been silent for an hour, by the times of the pool's file system, and stays silent while the sweep watches for
//! longer than two beats, by its own clock. If no owner is silent, the sweep does not wait.

use rustix::fs::{self, AtFlags};

use super::owner::{self, Life, Watch};
use super::trees::Mark;
use super::{Pool, disk, trust};
use crate::error::{Error, Result};
use crate::format::Time;
use crate::host::beat;
use crate::host::walk::Stat;

/// An owner or a tree whose process may be dead.
struct Suspect {
    what: Left,
    life: Life,
    /// The file within the pool that the process touches while it lives, and its last touch.
    beat: String,
    beaten: Time,
}

/// What a process may have left.
enum Left {
    /// Everything that an owner of this name has in the pool, and its rooms.
    Owner(String),
    /// A tree that ends with a process.
    Tree(Box<Mark>),
}

impl Pool {
    /// Removes what dead processes left: temporaries, claims, half-built trees, and trees that end with them. If
    /// processes that it cannot see have been silent for long, waits some seconds for a sign of life. Returns why some
    /// of their trees and rooms still exist.
    ///
    /// # Errors
    /// When the pool cannot be listed. What cannot be removed is left for the next sweep.
    pub fn sweep(&self) -> Result<Vec<Error>> {
        let mut kept = Vec::new();
        let suspects = self.suspects()?;
        let (dead, unseen): (Vec<_>, Vec<_>) = suspects
            .into_iter()
            .filter(|suspect| suspect.life != Life::Alive)
            .partition(|suspect| suspect.life == Life::Dead);
        let (trees, owners): (Vec<_>, Vec<_>) = dead
            .into_iter()
            .chain(self.silent(unseen))
            .partition(|suspect| matches!(suspect.what, Left::Tree(_)));
        // Trees come first, since their holders are recognized by the files of owners.
        for suspect in trees.into_iter().chain(owners) {
            match suspect.what {
                Left::Tree(mark) => kept.extend(self.remove_abandoned(&mark)),
                Left::Owner(id) => {
                    self.remove_rooms_of(&id);
                    owner::bury_dead(&self.fd, &self.claims, &id, &self.path)?;
                }
            }
        }
        kept.extend(self.remove_rooms_of_nobody());
        Ok(kept)
    }

    /// All owners, and all trees that end with a process.
    fn suspects(&self) -> Result<Vec<Suspect>> {
        let watch = Watch::new();
        let mut suspects = Vec::new();
        for name in disk::names(self.directory("owners")?, &self.path)? {
            let Ok(id) = String::from_utf8(name) else {
                continue;
            };
            let beat = format!("owners/{id}");
            let looked = watch.look(&self.fd, &beat);
            suspects.extend(looked.map(|(life, stat)| Suspect {
                what: Left::Owner(id),
                life,
                beat,
                beaten: stat.mtime,
            }));
        }
        for (name, mark) in self.held()? {
            let Some(holder) = &mark.held_by else {
                continue;
            };
            let life = watch.life(&holder.identity);
            // If a holder's file is gone, it shows no sign of life; its mark then dates the last one.
            let beats = [format!("owners/{}", holder.owner), format!("trees/{name}")];
            let mut beats = beats
                .into_iter()
                .filter_map(|beat| Some((self.beaten(&beat)?, beat)));
            suspects.extend(beats.next().map(|(beaten, beat)| Suspect {
                what: Left::Tree(Box::new(mark.clone())),
                life,
                beat,
                beaten,
            }));
        }
        Ok(suspects)
    }

    /// The suspects that have been silent for long and stay silent.
    fn silent(&self, suspects: Vec<Suspect>) -> Vec<Suspect> {
        if suspects.is_empty() {
            return suspects;
        }
        // A pool that does not accept files cannot be swept.
        let Ok(now) = self.time() else {
            return Vec::new();
        };
        beat::silent(
            suspects,
            now,
            |suspect| suspect.beaten,
            |suspect| self.beaten(&suspect.beat),
        )
    }

    /// When a file of the pool was last touched, if it belongs to the caller.
    fn beaten(&self, name: &str) -> Option<Time> {
        let stat = fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        (stat.st_uid == trust::user()).then(|| Stat::from(stat).mtime)
    }

    /// The current time by the clock of the file system, which also dates touches: the time of a new file.
    fn time(&self) -> Result<Time> {
        let owner = self.owner()?;
        let name = disk::random_name()?;
        let failed = |errno| disk::failed("create a file in pool", &self.path, errno);
        let file = disk::create(&owner.temporaries, name.as_bytes(), 0o600).map_err(failed)?;
        let stat = Stat::of_file(&file, &self.path);
        disk::forgive(fs::unlinkat(&owner.temporaries, name, AtFlags::empty()));
        Ok(stat?.mtime)
    }
}
