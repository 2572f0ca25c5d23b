//! stub
use crate::error::{Error, Result};
use crate::format::{Content, RefName};
use crate::id::StoreId;
use crate::walk::Stat;
use std::path::Path;
/// s
#[derive(Debug, Default)]
pub struct StatCache;
/// s
#[derive(Debug, Clone)]
pub struct CacheBase {
    /// n
    pub name: RefName,
    /// v
    pub version: u64,
}
#[expect(missing_docs, reason = "replaced by the real one next")]
impl StatCache {
    pub fn open(_: Option<&Path>, _: StoreId, _: &Path) -> Self {
        Self
    }
    pub fn base(&self) -> Option<&CacheBase> {
        None
    }
    pub fn lookup(&mut self, _: &[u8], _: &Stat) -> Option<Content> {
        None
    }
    pub fn record(&mut self, _: &[u8], _: &Stat, _: &Content, _: jiff::Timestamp) {}
    pub fn commit(self, _: &CacheBase) -> Result<()> {
        Err(Error::invalid("stub")).or(Ok(()))
    }
}
