//! Fields that this program does not know. It keeps them: a checkpoint that it writes contains them again.
//!
//! A field that names a content needs a read-only feature as well. Otherwise a program that keeps the field without
//! understanding it would collect the content.

use std::collections::BTreeMap;

/// Unknown fields by name.
pub type Extra = BTreeMap<String, serde_json::Value>;

/// The name of a field in JSON.
#[derive(serde::Deserialize)]
pub(super) struct Key<'a>(#[serde(borrow)] pub(super) std::borrow::Cow<'a, str>);

/// Implements `Deserialize` for a struct with these fields. Fields with a default may be missing; unknown fields go
/// into the field `extra`. The `flatten` of serde would copy every field on the way, which is too slow for checkpoints,
/// because they consist mostly of versions.
macro_rules! carries_unknown {
    ($name:ident { $($field:ident $(= $default:expr)?),* $(,)? } $(skips $($skipped:ident),+)?) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                struct Fields;

                impl<'de> serde::de::Visitor<'de> for Fields {
                    type Value = $name;

                    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        out.write_str(concat!("struct ", stringify!($name)))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<Self::Value, A::Error> {
                        use serde::de::Error as _;
                        $(let mut $field = None;)*
                        let mut extra = $crate::format::Extra::new();
                        while let Some(key) = map.next_key::<$crate::format::extra::Key<'_>>()? {
                            match &*key.0 {
                                $(stringify!($field) => {
                                    if $field.replace(map.next_value()?).is_some() {
                                        return Err(A::Error::duplicate_field(stringify!($field)));
                                    }
                                })*
                                _ => {
                                    extra.insert(key.0.into_owned(), map.next_value()?);
                                }
                            }
                        }
                        Ok($name {
                            $($field: carries_unknown!(@or A, $field $(, $default)?),)*
                            $($($skipped: Default::default(),)+)?
                            extra,
                        })
                    }
                }

                input.deserialize_map(Fields)
            }
        }
    };
    (@or $access:ident, $field:ident) => {
        match $field {
            Some(value) => value,
            None => return Err($access::Error::missing_field(stringify!($field))),
        }
    };
    (@or $access:ident, $field:ident, $default:expr) => {
        $field.unwrap_or_else(|| $default)
    };
}

pub(super) use carries_unknown;
