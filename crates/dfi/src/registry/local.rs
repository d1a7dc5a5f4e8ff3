//! The registry of one process.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millstream_fabric::setup::Hello;

use crate::declaration::Declaration;
use crate::error::{Error, Result};
use crate::registry::{End, Registry};
use crate::thread::Role;

/// A registry for the threads of one process, and the store behind a
/// [`RegistryService`](crate::RegistryService). A clone is the same registry.
#[derive(Clone, Default)]
pub struct LocalRegistry(Arc<Shelf>);

#[derive(Default)]
struct Shelf {
    flows: Mutex<HashMap<String, Entry>>,
    changed: Condvar,
}

/// A published flow.
struct Entry {
    declaration: Declaration,
    /// By index: the set-up messages of a source, once it has joined.
    sources: Vec<Option<Vec<Hello>>>,
    targets: Vec<Option<Vec<Hello>>>,
}

impl Entry {
    fn joined(&self, role: Role) -> &[Option<Vec<Hello>>] {
        match role {
            Role::Source => &self.sources,
            Role::Target => &self.targets,
        }
    }

    /// How many threads have not joined, and the first.
    fn missing(&self) -> Option<(u32, End)> {
        let absent = |role: Role| {
            let all = self.joined(role).iter().enumerate();
            all.filter(|(_, one)| one.is_none())
                .map(move |(index, _)| End { role, index: index as u32 })
        };
        let mut all = absent(Role::Source).chain(absent(Role::Target));
        let first = all.next()?;
        Some((1 + all.count() as u32, first))
    }
}

impl LocalRegistry {
    /// A registry without flows.
    pub fn new() -> LocalRegistry {
        LocalRegistry::default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        // Every change is a single call, so a panic elsewhere leaves the map whole.
        self.0.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `look` finds something, for at most `patience`.
    fn wait<T>(
        &self,
        patience: Duration,
        mut look: impl FnMut(&HashMap<String, Entry>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let start = Instant::now();
        let mut flows = self.lock();
        loop {
            if let Some(found) = look(&flows)? {
                return Ok(Some(found));
            }
            let left = patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.0.changed.wait_timeout(flows, left);
            flows = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Registry for LocalRegistry {
    fn publish(&self, declaration: &Declaration) -> Result<()> {
        declaration.check()?;
        let mut flows = self.lock();
        let flow = declaration.name.clone();
        if flows.contains_key(&flow) {
            return Err(Error::NameTaken { flow });
        }
        let entry = Entry {
            sources: vec![None; declaration.sources.len()],
            targets: vec![None; declaration.targets.len()],
            declaration: declaration.clone(),
        };
        flows.insert(flow, entry);
        self.0.changed.notify_all();
        Ok(())
    }

    fn look_up(&self, flow: &str, patience: Duration) -> Result<Declaration> {
        let found = self
            .wait(patience, |flows| Ok(flows.get(flow).map(|entry| entry.declaration.clone())))?;
        found.ok_or_else(|| Error::NoFlow { flow: flow.to_owned(), patience })
    }

    fn join(&self, flow: &str, end: End, hellos: Vec<Hello>) -> Result<()> {
        let mut flows = self.lock();
        let Some(entry) = flows.get_mut(flow) else { return Err(unknown(flow)) };
        let (ours, theirs) = (entry.joined(end.role.other()).len(), hellos.len());
        if ours != theirs {
            let (ours, theirs) = (ours as u64, theirs as u64);
            return Err(Error::Mismatch { what: "count of set-up messages", ours, theirs });
        }
        let all = match end.role {
            Role::Source => &mut entry.sources,
            Role::Target => &mut entry.targets,
        };
        match all.get_mut(end.index as usize) {
            Some(slot @ None) => *slot = Some(hellos),
            slot => {
                let which = if slot.is_some() { "has joined already" } else { "does not exist" };
                let why = format!("{} {} of flow {flow:?} {which}", end.role, end.index);
                return Err(Error::Registry { why });
            }
        }
        self.0.changed.notify_all();
        Ok(())
    }

    fn peers(&self, flow: &str, end: End, patience: Duration) -> Result<Vec<Hello>> {
        let mut missing = None;
        let found = self.wait(patience, |flows| {
            let Some(entry) = flows.get(flow) else { return Err(unknown(flow)) };
            missing = entry.missing().map(|(count, first)| {
                (count, entry.declaration.peer(first.role, first.index as usize))
            });
            if missing.is_some() {
                return Ok(None);
            }
            let others = entry.joined(end.role.other()).iter().flatten();
            let for_end = others.filter_map(|hellos| hellos.get(end.index as usize).cloned());
            Ok(Some(for_end.collect()))
        })?;
        match (found, missing) {
            (Some(hellos), _) => Ok(hellos),
            (None, Some((missing, first))) => {
                Err(Error::NotJoined { flow: flow.to_owned(), missing, first, patience })
            }
            (None, None) => Err(unknown(flow)),
        }
    }

    fn withdraw(&self, flow: &str) -> Result<()> {
        let removed = self.lock().remove(flow);
        self.0.changed.notify_all();
        removed.map(|_| ()).ok_or_else(|| unknown(flow))
    }
}

fn unknown(flow: &str) -> Error {
    Error::NoFlow { flow: flow.to_owned(), patience: Duration::ZERO }
}
