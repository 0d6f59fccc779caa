//! Models the handle table: a key refers to its value until it is removed, and it can be removed
//! only once.

use std::collections::HashSet;
use std::sync::Arc;

use crate::sync::Mutex;
use shuttle::rand::Rng;
use shuttle::thread;

#[path = "../../src/ffi/handle_table.rs"]
mod handle_table;

use handle_table::HandleTable;

/// The known keys, each with its value.
type Known = Arc<Mutex<Vec<(usize, usize)>>>;

pub fn model() {
    let table = Arc::new(HandleTable::<usize>::new());
    let (known, removed): (Known, Known) = Default::default();
    let threads = (0..3).map(|number| {
        let (table, known, removed) =
            (Arc::clone(&table), Arc::clone(&known), Arc::clone(&removed));
        thread::spawn(move || {
            for step in 0..4 {
                act(&table, &known, &removed, number * 100 + step);
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    let (known, removed) = (known.lock().unwrap(), removed.lock().unwrap());
    let keys: HashSet<usize> = known.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys.len(), known.len(), "two values have had the same key");
    let gone: HashSet<usize> = removed.iter().map(|(key, _)| *key).collect();
    assert_eq!(gone.len(), removed.len(), "a value was removed twice");
    for (key, value) in known.iter() {
        let found = table.get(*key);
        let expected = (!gone.contains(key)).then_some(*value);
        assert_eq!(found, expected, "key {key}");
    }
}

/// Inserts, looks up or removes a key. Other threads may do the same with the same key.
fn act(table: &HandleTable<usize>, known: &Known, removed: &Known, value: usize) {
    let chosen = {
        let known = known.lock().unwrap();
        let index = shuttle::rand::thread_rng().gen_range(0..=known.len());
        known.get(index).copied()
    };
    match chosen {
        None => {
            let key = table.insert(value);
            assert_ne!(key, 0, "NULL is no handle");
            known.lock().unwrap().push((key, value));
        }
        Some((key, value)) if shuttle::rand::thread_rng().r#gen::<bool>() => {
            if let Some(found) = table.get(key) {
                assert_eq!(found, value, "a key refers to another value");
            }
        }
        Some((key, value)) => {
            // Removing a handle of another type has no effect.
            assert_eq!(table.remove(key, |found| *found != value), None);
            if let Some(found) = table.remove(key, |_| true) {
                assert_eq!(found, value, "the removed value is another one");
                removed.lock().unwrap().push((key, value));
            }
        }
    }
}
