//! The object `format`: what a program must know before it uses a store.
//!
//! Written once, at `init`. A program refuses a store with an unknown version or an unknown incompatible feature, and
//! refuses to write to a store with an unknown read-only feature; the error names it. Unknown fields are ignored.

use serde::{Deserialize, Serialize};

use super::cursor::corrupt;
use super::features::{self, Features, SINGLE_WRITER};
use super::sealed::{parse, seal_as, unseal_text};
use super::{CHUNK_BYTES_MAX, FORMAT_KEY};
use crate::error::{Error, ErrorKind, Result};
use crate::id::StoreId;
use crate::remedy::Remedy;

/// The version of the format that this program writes.
pub const FORMAT_VERSION: u32 = 2;
/// The newest version that can no longer be opened.
const INTERIM_VERSION: u32 = 1;
/// The first field of the object `format`.
pub const FORMAT_MAGIC: &str = "store-format";
/// The hash function for chunk ids and checksums: BLAKE3 without a key.
pub const HASH: &str = "blake3";
/// The chunker that this program implements.
pub const CHUNKER_ALGORITHM: &str = "fastcdc-v2020";
/// Range of [`ChunkerParams::min`].
pub const CHUNKER_MIN_RANGE: std::ops::RangeInclusive<u32> = 64..=1 << 20;
/// Range of [`ChunkerParams::avg`].
pub const CHUNKER_AVG_RANGE: std::ops::RangeInclusive<u32> = 256..=4 << 20;
/// Range of [`ChunkerParams::max`].
pub const CHUNKER_MAX_RANGE: std::ops::RangeInclusive<u32> = 1024..=CHUNK_BYTES_MAX;
/// Highest [`ChunkerParams::normalization`].
pub const CHUNKER_NORMALIZATION_MAX: u8 = 3;

/// Most bytes of a GGUF header, or of the directory of an archive, that are searched for tensors.
pub const TENSOR_HEADER_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of a safetensors header, which also limits each string in it.
pub const SAFETENSORS_HEADER_BYTES_MAX: u64 = 16 << 20;
/// The newest rule of [`ChunkerParams::tensors`].
pub const CHUNKER_TENSORS_MAX: u32 = 1;

/// Parameters of the chunker. They are part of a store's identity, because they decide what deduplicates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChunkerParams {
    /// `fastcdc-v2020`.
    pub algorithm: String,
    /// Least bytes of a chunk, except the last of a file; even.
    pub min: u32,
    /// Target for the average chunk size; even.
    pub avg: u32,
    /// Most bytes of a chunk; even, at most [`crate::format::CHUNK_BYTES_MAX`].
    pub max: u32,
    /// Normalization level, 0 to 3.
    pub normalization: u8,
    /// Seed of the gear table; 0 selects the table of the paper.
    pub seed: u64,
    /// The rule by which tensor files are cut at their tensors; 0 for none.
    pub tensors: u32,
}

/// The object `format`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// Version of the whole layout.
    pub version: u32,
    /// Random name of the store.
    pub id: StoreId,
    /// The hash function for chunk ids and checksums: `blake3`.
    pub hash: String,
    /// How files are cut into chunks.
    pub chunker: ChunkerParams,
    /// Features in use.
    pub features: Features,
}

impl Default for ChunkerParams {
    /// FastCDC 2020, 16/64/256 KiB, normalization 2, the table of the paper, cuts at tensors.
    fn default() -> Self {
        Self {
            algorithm: CHUNKER_ALGORITHM.to_owned(),
            min: 16 << 10,
            avg: 64 << 10,
            max: 256 << 10,
            normalization: 2,
            seed: 0,
            tensors: CHUNKER_TENSORS_MAX,
        }
    }
}

impl ChunkerParams {
    /// Whether this program supports these parameters.
    ///
    /// # Errors
    /// Unsupported, when the algorithm or the tensor rule is unknown; invalid input, when a number is out of its range.
    pub fn check(&self) -> Result<()> {
        if self.algorithm != CHUNKER_ALGORITHM {
            let message = format!(
                "chunker {:?} is unknown, this program has {CHUNKER_ALGORITHM:?}",
                self.algorithm
            );
            return Err(Error::unsupported(message).hint("update this program"));
        }
        check_size("min", self.min, &CHUNKER_MIN_RANGE)?;
        check_size("avg", self.avg, &CHUNKER_AVG_RANGE)?;
        check_size("max", self.max, &CHUNKER_MAX_RANGE)?;
        if !(self.min < self.avg && self.avg < self.max) {
            return Err(Error::invalid(format!(
                "chunker: expected min < avg < max, found {}, {}, {}",
                self.min, self.avg, self.max
            )));
        }
        if self.normalization > CHUNKER_NORMALIZATION_MAX {
            return Err(Error::invalid(format!(
                "chunker normalization: expected 0 to {CHUNKER_NORMALIZATION_MAX}, found {}",
                self.normalization
            )));
        }
        if self.tensors > CHUNKER_TENSORS_MAX {
            let message = format!(
                "chunker tensors: rule {} is unknown, this program has {CHUNKER_TENSORS_MAX}",
                self.tensors
            );
            return Err(Error::unsupported(message).hint("update this program"));
        }
        Ok(())
    }
}

impl Format {
    /// The format of a new store: version 2, FastCDC 16/64/256 KiB, cuts at tensors, no features.
    pub fn new(id: StoreId) -> Self {
        Self {
            version: FORMAT_VERSION,
            id,
            hash: HASH.to_owned(),
            chunker: ChunkerParams::default(),
            features: Features::default(),
        }
    }

    /// Returns the same format for an endpoint that overwrites on put-if-absent.
    #[must_use]
    pub fn for_single_writer(mut self) -> Self {
        self.features.incompatible.push(SINGLE_WRITER.to_owned());
        self
    }

    /// Whether only one process may write at a time.
    pub fn is_single_writer(&self) -> bool {
        self.features.is_single_writer()
    }

    /// Returns the bytes of the object.
    ///
    /// # Errors
    /// When [`Self::decode`] would refuse them.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.check()?;
        seal_as(FORMAT_MAGIC, None, self)
    }

    /// Parses the object, and checks that the version, the hash and the incompatible features are known and that the
    /// parameters of a known chunker are within limits.
    ///
    /// # Errors
    /// Corrupt or unsupported; see [`Self`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let text = unseal_text(FORMAT_KEY, bytes)?;
        let head: Head = parse(FORMAT_KEY, text)?;
        if head.magic != FORMAT_MAGIC {
            let detail = format_args!("magic: expected {FORMAT_MAGIC:?}, found {:?}", head.magic);
            return Err(corrupt(FORMAT_KEY, detail));
        }
        check_format_version(head.version)?;
        features::check_incompatible(FORMAT_KEY, &head.features.incompatible)?;
        let format: Self = parse(FORMAT_KEY, text)?;
        check_hash(&format.hash)?;
        match format.chunker.check() {
            // A reader does not cut files, so an unknown chunker is no obstacle.
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(format),
            Err(error) => Err(corrupt(FORMAT_KEY, error)),
            Ok(()) => Ok(format),
        }
    }

    /// Whether this program may write to the store.
    ///
    /// # Errors
    /// Unsupported, naming the read-only feature or the chunker that is unknown.
    pub fn check_writable(&self) -> Result<()> {
        let chunker = self
            .chunker
            .check()
            .map_err(|error| error.within(FORMAT_KEY));
        chunker?;
        self.features.check_writable(FORMAT_KEY)
    }

    fn check(&self) -> Result<()> {
        check_format_version(self.version)?;
        self.features.check_readable(FORMAT_KEY)?;
        check_hash(&self.hash)?;
        self.chunker.check()
    }
}

impl<'de> Deserialize<'de> for ChunkerParams {
    /// If the algorithm is unknown, only its name is read.
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> std::result::Result<Self, D::Error> {
        use serde::de::Error as _;
        let value = serde_json::Value::deserialize(input)?;
        let Named { algorithm } = Named::deserialize(&value).map_err(D::Error::custom)?;
        if algorithm == CHUNKER_ALGORITHM {
            let known = FastCdc::deserialize(&value).map_err(D::Error::custom)?;
            return Ok(known.of(algorithm));
        }
        let unknown = FastCdc {
            min: 0,
            avg: 0,
            max: 0,
            normalization: 0,
            seed: 0,
            tensors: 0,
        };
        Ok(unknown.of(algorithm))
    }
}

#[derive(Deserialize)]
struct Named {
    algorithm: String,
}

#[derive(Deserialize)]
struct FastCdc {
    min: u32,
    avg: u32,
    max: u32,
    normalization: u8,
    seed: u64,
    #[serde(default)]
    tensors: u32,
}

impl FastCdc {
    fn of(self, algorithm: String) -> ChunkerParams {
        ChunkerParams {
            algorithm,
            min: self.min,
            avg: self.avg,
            max: self.max,
            normalization: self.normalization,
            seed: self.seed,
            tensors: self.tensors,
        }
    }
}

/// The fields that are read first, so that all others may change in a newer version.
#[derive(Deserialize)]
struct Head {
    magic: String,
    version: u32,
    #[serde(default)]
    features: HeadFeatures,
}

#[derive(Default, Deserialize)]
struct HeadFeatures {
    #[serde(default)]
    incompatible: Vec<String>,
}

fn check_format_version(version: u32) -> Result<()> {
    if version == FORMAT_VERSION {
        return Ok(());
    }
    let message = format!("format version is {version}, this program reads {FORMAT_VERSION}");
    let hint = match version {
        INTERIM_VERSION => Remedy::PutIntoNewStore,
        _ => "update this program".into(),
    };
    Err(Error::unsupported(message).hint(hint))
}

fn check_hash(hash: &str) -> Result<()> {
    if hash == HASH {
        return Ok(());
    }
    let message = format!("format: hash {hash:?} is unknown, so this program cannot use the store");
    Err(Error::unsupported(message).hint("update this program"))
}

fn check_size(what: &str, size: u32, range: &std::ops::RangeInclusive<u32>) -> Result<()> {
    if range.contains(&size) && size.is_multiple_of(2) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    Err(Error::invalid(format!(
        "chunker {what}: expected an even number from {least} to {most}, found {size}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::seal;

    fn sealed(change: impl Fn(&mut serde_json::Value)) -> Vec<u8> {
        let mut json = serde_json::to_value(Format::new(StoreId([7; 16]))).unwrap();
        json["magic"] = FORMAT_MAGIC.into();
        change(&mut json);
        seal(&json).unwrap()
    }

    #[test]
    fn a_new_format_survives() {
        let format = Format::new(StoreId([7; 16]));
        let bytes = format.encode().unwrap();
        assert_eq!(Format::decode(&bytes).unwrap(), format);
        format.check_writable().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.starts_with(r#"{"magic":"store-format","version":2,"id":"07070707"#),
            "{text}"
        );
    }

    #[test]
    fn a_later_version_is_unsupported_whatever_its_shape() {
        let error = Format::decode(&sealed(|json| {
            json["version"] = 7.into();
            json["chunker"] = "gone".into();
        }))
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "format version is 7, this program reads 2"
        );
        assert_eq!(error.remedy(), Some(&"update this program".into()));
    }

    #[test]
    fn a_store_of_the_interim_version_is_refused_by_name() {
        let error = Format::decode(&sealed(|json| {
            json["version"] = 1.into();
            json.as_object_mut().unwrap().remove("hash");
        }))
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "format version is 1, this program reads 2"
        );
        assert_eq!(error.remedy(), Some(&Remedy::PutIntoNewStore));
    }

    #[test]
    fn an_unknown_hash_is_refused_by_name() {
        let error = Format::decode(&sealed(|json| json["hash"] = "sha256".into())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "format: hash \"sha256\" is unknown, so this program cannot use the store"
        );
        let error = Format::decode(&sealed(|json| {
            drop(json.as_object_mut().unwrap().remove("hash"))
        }));
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn an_unknown_chunker_forbids_writing_and_not_reading() {
        let bytes = sealed(|json| {
            json["chunker"] = serde_json::json!({"algorithm": "rabin", "window": [1]})
        });
        let format = Format::decode(&bytes).unwrap();
        let error = format.check_writable().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "format: chunker \"rabin\" is unknown, this program has \"fastcdc-v2020\""
        );
        assert_eq!(format.encode().unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_store_of_a_single_writer_says_so() {
        let several = Format::new(StoreId([7; 16]));
        assert!(!several.is_single_writer());
        let single = several.for_single_writer();
        let read = Format::decode(&single.encode().unwrap()).unwrap();
        assert!(read.is_single_writer());
        assert_eq!(read.features.incompatible, [SINGLE_WRITER]);
    }

    #[test]
    fn unknown_features_forbid_what_they_must_by_name() {
        let features = |list: &str| sealed(|json| json["features"][list] = ["warp"].into());
        let error = Format::decode(&features("incompatible")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "format: feature \"warp\" is unknown, so this program cannot use the store"
        );
        let format = Format::decode(&features("read_only")).unwrap();
        let error = format.check_writable().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "format: feature \"warp\" is unknown, so this program can only read the store"
        );
        let format = Format::decode(&features("compatible")).unwrap();
        format.check_writable().unwrap();
        assert_eq!(format.features.compatible, ["warp"]);
    }

    #[test]
    fn unknown_fields_are_ignored() {
        Format::decode(&sealed(|json| json["new"] = 1.into())).unwrap();
    }

    #[test]
    fn an_unknown_rule_for_tensors_forbids_writing_and_not_reading() {
        let bytes = sealed(|json| json["chunker"]["tensors"] = 7.into());
        let format = Format::decode(&bytes).unwrap();
        let error = format.check_writable().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "format: chunker tensors: rule 7 is unknown, this program has 1"
        );
        let bytes = sealed(|json| drop(json["chunker"].as_object_mut().unwrap().remove("tensors")));
        assert_eq!(Format::decode(&bytes).unwrap().chunker.tensors, 0);
    }

    #[test]
    fn chunkers_out_of_range_are_told_with_the_range() {
        let cases: [(&str, serde_json::Value, &str); 6] = [
            (
                "min",
                62.into(),
                "format: chunker min: expected an even number from 64 to 1048576, found 62",
            ),
            (
                "min",
                16385.into(),
                "format: chunker min: expected an even number from 64 to 1048576, found 16385",
            ),
            (
                "avg",
                16384.into(),
                "format: chunker: expected min < avg < max, found 16384, 16384, 262144",
            ),
            (
                "max",
                65536.into(),
                "format: chunker: expected min < avg < max, found 16384, 65536, 65536",
            ),
            (
                "max",
                4_194_306.into(),
                "format: chunker max: expected an even number from 1024 to 4194304, found 4194306",
            ),
            (
                "normalization",
                4.into(),
                "format: chunker normalization: expected 0 to 3, found 4",
            ),
        ];
        for (field, value, message) in cases {
            let bytes = sealed(|json| json["chunker"][field] = value.clone());
            assert_eq!(Format::decode(&bytes).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn what_would_not_be_read_is_not_written() {
        let mut format = Format::new(StoreId([7; 16]));
        format.chunker.min = 1;
        assert_eq!(format.encode().unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
