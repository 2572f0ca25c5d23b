//! Credentials of a bucket: their providers, and errors that show that a provider failed.

mod process;

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use object_store::{CredentialProvider, Error, Result};

pub(super) use process::{Failed, Process};

/// The error when no credentials were found.
#[derive(Debug)]
pub(super) struct NoCredentials(Error);

/// Marks every failure of a provider as one of credentials.
#[derive(Debug)]
pub(super) struct Found<C>(pub(super) Arc<dyn CredentialProvider<Credential = C>>);

/// The future that a provider returns.
type Promise<'f, C> = Pin<Box<dyn Future<Output = Result<Arc<C>>> + Send + 'f>>;

impl<C: fmt::Debug + Send + Sync> CredentialProvider for Found<C> {
    type Credential = C;

    fn get_credential<'s, 'f>(&'s self) -> Promise<'f, C>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async { self.0.get_credential().await.map_err(no_credentials) })
    }
}

fn no_credentials(error: Error) -> Error {
    Error::Generic {
        store: "credentials",
        source: Box::new(NoCredentials(error)),
    }
}

impl fmt::Display for NoCredentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl StdError for NoCredentials {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}
