//! Mark, policy, plan (pure), apply: the only crate that deletes from a store.
