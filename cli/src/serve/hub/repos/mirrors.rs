//! Mirrors: repos of an upstream that grow with the requests, each in a ref of its own.
//!
//! A public repo is mirrored in the ref where a local repo of the name would be. All others are below `.gated/`, where
//! only pull-through looks.

use std::collections::HashMap;

use store::{Content, Reader, RefName, Result};

use crate::serve::hub::listing::Listing;
use crate::serve::hub::repos::{FilesOf, GATED, Repo, Repos, is_live};
use crate::serve::hub::route::Named;
use crate::serve::hub::saved::{hashed, read_listing};

/// What a namespace has of a repo that the upstream may have, too.
#[derive(Clone, Debug)]
pub(crate) struct Mirrors {
    /// The mirror of the public repo.
    pub(crate) open: Option<Repo>,
    pub(crate) gated: Option<Repo>,
    /// Whether the namespace has a repo of its own with this name.
    pub(crate) is_own: bool,
    /// The repo in a saved cache of another ref.
    pub(crate) saved: Option<Repo>,
}

impl Repos {
    /// The repo in the first saved cache of the namespace that has it.
    pub(in crate::serve::hub) fn saved_elsewhere(
        &self,
        reader: &Reader<'_>,
        named: &Named,
    ) -> Result<Option<RefName>> {
        let own = named.own_ref()?;
        for one in reader.view().state.refs.within(Some(&named.namespace)) {
            let (name, known) = one?;
            if let Some(version) = known.versions.values().next_back()
                && name != own
                && !name.path().starts_with(GATED)
                && self.saved_repo(reader, version, named)?.is_some()
            {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// The mirror of a repo in the ref `name`, if there is one.
    pub(in crate::serve::hub) fn mirror(
        &self,
        reader: &Reader<'_>,
        named: &Named,
        name: &RefName,
    ) -> Result<Option<Repo>> {
        let is_there = self.dir(reader, named, name)?.is_some();
        Ok(is_there.then(|| Repo::new(named, name.clone(), true, true)))
    }

    /// The directory of a saved repo in the newest version of the ref `name`.
    fn dir(&self, reader: &Reader<'_>, named: &Named, name: &RefName) -> Result<Option<Content>> {
        if !is_live(reader, name)? {
            return Ok(None);
        }
        let versions = reader.view().state.versions(name)?;
        match versions.values().next_back() {
            Some(version) => self.saved_repo(reader, version, named),
            None => Ok(None),
        }
    }

    /// What the namespace has of a repo of the upstream. Blocks.
    pub(crate) fn mirrors(&self, reader: &Reader<'_>, named: &Named) -> Result<Mirrors> {
        let number = reader.view().state.number;
        self.mirrors.answer(number, named.clone(), |named| {
            let found = self.find(reader, named)?;
            if found.as_ref().is_some_and(|found| !found.is_saved) {
                return Ok(Mirrors {
                    is_own: true,
                    saved: None,
                    open: None,
                    gated: None,
                });
            }
            let gated = self.mirror(reader, named, &named.gated_ref()?)?;
            let saved = self.saved_elsewhere(reader, named)?;
            Ok(Mirrors {
                is_own: false,
                saved: saved.map(|name| Repo::new(named, name, true, false)),
                open: found.filter(|found| found.is_mirror),
                gated,
            })
        })
    }

    /// The listing of a commit of a mirror, if it is stored. Blocks.
    pub(crate) fn listing(
        &self,
        reader: &Reader<'_>,
        (named, is_open): (&Named, bool),
        sha: &str,
    ) -> Result<Option<Listing>> {
        let mirrors = self.mirrors(reader, named)?;
        let mirror = if is_open { mirrors.open } else { mirrors.gated };
        let Some(mirror) = mirror else {
            return Ok(None);
        };
        match self.commit(reader, &mirror, sha)?.map(|found| found.files) {
            Some(FilesOf::Listed { listing, .. }) => read_listing(reader, &listing).map(Some),
            _ => Ok(None),
        }
    }

    /// The files of a repo in saved caches of the namespace, by hash. Blocks.
    pub(crate) fn hashed(
        &self,
        reader: &Reader<'_>,
        named: &Named,
    ) -> Result<HashMap<String, Content>> {
        let mut found = HashMap::new();
        for one in reader.view().state.refs.within(Some(&named.namespace)) {
            let (_, known) = one?;
            if let Some(version) = known.versions.values().next_back()
                && let Some(dir) = self.saved_repo(reader, version, named)?
            {
                found.extend(hashed(reader, &dir)?);
            }
        }
        Ok(found)
    }

    /// Whether the newest version of a mirror has a file with this hash. Blocks.
    pub(crate) fn has_hashed(
        &self,
        reader: &Reader<'_>,
        (named, name): (&Named, &RefName),
        hash: &str,
    ) -> Result<bool> {
        match self.dir(reader, named, name)? {
            Some(dir) => Ok(hashed(reader, &dir)?.contains_key(hash)),
            None => Ok(false),
        }
    }
}
