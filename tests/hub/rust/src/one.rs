//! Generation 1: the Hub's API with builders, and whole repos at once.

use std::error::Error;
use std::path::PathBuf;

use hf_hub_1::repository::RepoType;
use hf_hub_1::{HFClientSync, HFError, HFRepositorySync};

use crate::{Client, Outcome, Repo};

struct One(HFClientSync);

/// A client that reads its variables itself.
pub(crate) fn client() -> Outcome<Box<dyn Client>> {
    Ok(Box::new(One(HFClientSync::new()?)))
}

fn parts(repo: &Repo) -> (&'static str, &'static str) {
    repo.name.split_once('/').unwrap_or_default()
}

fn file<T: RepoType>(of: &HFRepositorySync<T>, repo: &Repo, name: &str) -> Outcome<PathBuf> {
    let asked = of.download_file().filename(name);
    Ok(asked.revision(repo.revision.clone()).send()?)
}

fn whole<T: RepoType>(of: &HFRepositorySync<T>, repo: &Repo) -> Outcome<PathBuf> {
    let asked = of.snapshot_download();
    Ok(asked.revision(repo.revision.clone()).send()?)
}

impl Client for One {
    fn files(&self, repo: &Repo) -> Outcome<(String, Vec<String>)> {
        let ((owner, name), revision) = (parts(repo), repo.revision.clone());
        let (sha, siblings) = match repo.is_dataset {
            true => {
                let info = self
                    .0
                    .dataset(owner, name)
                    .info()
                    .revision(revision)
                    .send()?;
                (info.sha, info.siblings)
            }
            false => {
                let info = self.0.model(owner, name).info().revision(revision).send()?;
                (info.sha, info.siblings)
            }
        };
        let files = siblings.unwrap_or_default().into_iter();
        let names = files.map(|file| file.rfilename);
        Ok((sha.unwrap_or_default(), names.collect()))
    }

    fn get(&self, repo: &Repo, name: &str) -> Outcome<PathBuf> {
        let (owner, own) = parts(repo);
        match repo.is_dataset {
            true => file(&self.0.dataset(owner, own), repo, name),
            false => file(&self.0.model(owner, own), repo, name),
        }
    }

    fn all(&self, repo: &Repo, _files: &[String]) -> Outcome<PathBuf> {
        let (owner, name) = parts(repo);
        match repo.is_dataset {
            true => whole(&self.0.dataset(owner, name), repo),
            false => whole(&self.0.model(owner, name), repo),
        }
    }

    fn can_name(&self, _file: &str) -> bool {
        true
    }

    fn is_refusal(&self, error: &(dyn Error + 'static)) -> bool {
        let Some(error) = error.downcast_ref::<HFError>() else {
            return false;
        };
        matches!(
            error,
            HFError::RepoNotFound { .. }
                | HFError::RevisionNotFound { .. }
                | HFError::EntryNotFound { .. }
                | HFError::AuthRequired { .. }
                | HFError::Forbidden { .. }
        )
    }
}
