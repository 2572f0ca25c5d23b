//! Safetensors: eight bytes with the length of a JSON header, the header with the offsets of the tensors, and the
//! tensors.

use std::fmt;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::header::{Header, Look, ReadAt, Stop, Tensor, TensorName};
use crate::format::SAFETENSORS_HEADER_BYTES_MAX;

/// The one key that is not a tensor.
const METADATA: &str = "__metadata__";

/// Returns all tensors.
pub(super) fn tensors(file: &dyn ReadAt, size: u64) -> Look<Vec<Tensor>> {
    let len = Header::new(file, 0, size).u64()?;
    let begin = len.checked_add(8).filter(|begin| *begin <= size);
    let begin = begin.ok_or(Stop::Another)?;
    if len > SAFETENSORS_HEADER_BYTES_MAX {
        return Err(Stop::Another);
    }
    let read = serde_json::from_reader::<_, Places>(Header::new(file, 8, begin));
    let Places(places) = read.map_err(|error| match error.is_io() {
        true => Stop::from(std::io::Error::from(error)),
        false => Stop::Another,
    })?;
    let place = |(name, (start, end)): (TensorName, (u64, u64))| {
        let place = begin.checked_add(start)?..begin.checked_add(end)?;
        Some(Tensor { place, name })
    };
    let tensors: Option<_> = places.into_iter().map(place).collect();
    tensors.ok_or(Stop::Another)
}

/// The ranges of the tensors, relative to the end of the header.
struct Places(Vec<(TensorName, (u64, u64))>);

#[derive(Deserialize)]
struct About {
    data_offsets: (u64, u64),
}

impl<'de> Deserialize<'de> for Places {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(PlacesVisitor)
    }
}

struct PlacesVisitor;

impl<'de> Visitor<'de> for PlacesVisitor {
    type Value = Places;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("tensors by name")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Places, M::Error> {
        let mut places = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                map.next_value::<IgnoredAny>()?;
            } else {
                let offsets = map.next_value::<About>()?.data_offsets;
                places.push((TensorName::of(name.as_bytes()), offsets));
            }
        }
        Ok(Places(places))
    }
}
