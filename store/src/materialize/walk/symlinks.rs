//! Symlinks of a walk: written as they are, refused when they lead out, or replaced by what they lead to.

use super::*;

impl<'m> Walk<'m> {
    /// What a symlink leads to, in its place.
    pub(super) fn flattened(
        &mut self,
        here: &Here<'_>,
        name: &[u8],
        path: Vec<u8>,
        (target, time): (&[u8], Time),
        old: &OldDir,
        is_settled: &mut bool,
    ) -> Result<()> {
        match self.whole.follow(here.canonical, target)? {
            Leads::To(
                Node::File {
                    content,
                    executable,
                },
                _,
            ) => {
                let key = PoolKey {
                    content,
                    executable,
                };
                self.file(here, name, key, (time, false), is_settled)
            }
            Leads::To(Node::Tree { content, .. }, canonical)
                if !here.canonical.starts_with(&canonical) =>
            {
                let old = OldDir::unknown(old);
                self.below(
                    here,
                    name,
                    path,
                    (&content, time, Some(time)),
                    &canonical,
                    &old,
                    is_settled,
                )
            }
            Leads::To(..) | Leads::Nowhere | Leads::Outside => Err(Error::invalid(format!(
                "{}: symlink to {}: leads to nothing that could take its place",
                shown(&path),
                shown(target)
            ))
            .hint("leave it out with --exclude, or materialize without --flatten")),
        }
    }

    pub(super) fn check_target(
        &mut self,
        here: &Here<'_>,
        path: &[u8],
        target: &[u8],
    ) -> Result<()> {
        if self.request.allow_outside_symlinks || Links::stays_inside(here.depth, target) {
            return Ok(());
        }
        let names: Vec<Vec<u8>> = here
            .path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec)
            .collect();
        match self.inside.follow(&names, target)? {
            Leads::To(..) | Leads::Nowhere => Ok(()),
            Leads::Outside => Err(Error::new(
                Kind::Denied,
                format!(
                    "{}: symlink to {} leads out of the destination",
                    shown(path),
                    shown(target)
                ),
            )
            .hint("make files of links with --flatten, leave it out with --exclude, or write it with --allow-outside-symlinks")),
        }
    }

    pub(super) fn symlink(
        &mut self,
        here: &Here<'_>,
        name: &[u8],
        target: &[u8],
        time: Time,
        is_settled: &mut bool,
    ) -> Result<()> {
        if here.is_fresh {
            return make_symlink(here.fd, name, target, time);
        }
        match stat(here.fd, name)? {
            None => {
                *is_settled = false;
                make_symlink(here.fd, name, target, time)
            }
            Some(found)
                if FileType::from_raw_mode(found.mode) == FileType::Symlink
                    && reads(here.fd, name, target) =>
            {
                self.report.unchanged += 1;
                if found.mtime == time {
                    Ok(())
                } else {
                    set_time(here.fd, name, time)
                }
            }
            Some(_) => {
                *is_settled = false;
                self.replacing.push(Waiting {
                    dir: Arc::clone(&here.path),
                    name: name.to_vec(),
                    is_fresh: false,
                    what: What::Symlink(target.to_vec(), time),
                });
                Ok(())
            }
        }
    }
}
