//! Names of namespaces and refs, as people write them.

use crate::error::Result;

/// `team/<name>` or `project/<name>`: who owns refs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(String);

/// `<namespace>/<path>`: a named, versioned tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(String);

/// What a person writes to name something in a store: `REF[@N][:PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefSpec {
    /// The ref.
    pub name: RefName,
    /// The version, or the newest.
    pub version: Option<u64>,
    /// The path inside of it, as bytes without leading slash; empty for the whole.
    pub path: Vec<u8>,
}

impl serde::Serialize for RefName {
    fn serialize<S: serde::Serializer>(&self, out: S) -> std::result::Result<S::Ok, S::Error> {
        out.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for RefName {
    fn deserialize<D: serde::Deserializer<'de>>(_input: D) -> std::result::Result<Self, D::Error> {
        todo!()
    }
}

// FromStr, Display, Serialize, Deserialize for Namespace and RefName; FromStr and Display for RefSpec.
// impl RefName { pub fn namespace(&self) -> Namespace; pub fn as_str(&self) -> &str }
// impl Namespace { pub fn contains(&self, name: &RefName) -> bool; pub fn as_str(&self) -> &str }
#[allow(unused)]
fn unused() -> Result<()> {
    Ok(())
}
