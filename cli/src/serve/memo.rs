//! Caches answers that were computed at one state of the store, while that state is the newest.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// Maximum number of answers.
const ANSWERS_MAX: usize = 10_000;

/// Answers by question, all for one state.
pub(crate) struct Memo<K, V>(Mutex<(u64, HashMap<K, V>)>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(Mutex::new((0, HashMap::new())))
    }
}

impl<K: Eq + Hash, V: Clone> Memo<K, V> {
    /// The answer at the state after log entry `number`: the cached one, or the result of `find`.
    ///
    /// # Errors
    /// Those of `find`.
    pub(crate) fn answer<E>(
        &self,
        number: u64,
        question: K,
        find: impl FnOnce(&K) -> Result<V, E>,
    ) -> Result<V, E> {
        if let Some(known) = self.known(number, &question) {
            return Ok(known);
        }
        let answer = find(&question)?;
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Answers for an older state are not cached.
        if memory.0 < number || memory.1.len() >= ANSWERS_MAX {
            *memory = (number.max(memory.0), HashMap::new());
        }
        if memory.0 == number {
            memory.1.insert(question, answer.clone());
        }
        Ok(answer)
    }

    /// The cached answer at the state after log entry `number`.
    pub(crate) fn known(&self, number: u64, question: &K) -> Option<V> {
        let memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = memory.1.get(question).filter(|_| memory.0 == number);
        known.cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_for_its_state() {
        let memo = Memo::default();
        let ask = |number, answer: u32| memo.answer(number, "x", |_| Ok::<_, ()>(answer)).unwrap();
        assert_eq!((ask(5, 1), ask(5, 2)), (1, 1));
        assert_eq!((ask(6, 3), ask(6, 4)), (3, 3));
        assert_eq!((ask(5, 7), ask(5, 8), ask(6, 9)), (7, 8, 3));
        assert_eq!(memo.answer(6, "y", |_| Err(())), Err(()));
        assert_eq!((memo.known(6, &"y"), memo.known(5, &"x")), (None, None));
        assert_eq!(memo.answer(6, "y", |_| Ok::<_, ()>(1)), Ok(1));
        assert_eq!(memo.known(6, &"y"), Some(1));
    }
}
