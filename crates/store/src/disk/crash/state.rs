//! Contents of a crashing disk: bytes and names as programs see them, and as a crash leaves them.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Component, Path};

use super::super::DirEntry;

/// Changes without a sync that survive a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// None.
    Synced,
    /// All: the program was killed, the system lives. They are still without a sync.
    Killed,
    /// Some names and some pieces of files, drawn from this seed.
    Some(u64),
}

#[derive(Debug, Clone)]
pub(super) struct State {
    nodes: Vec<Node>,
    pub(super) steps: u64,
    pub(super) crashed: bool,
    /// Number of restarts: files opened before are of no use.
    pub(super) restarts: u64,
}

#[derive(Debug, Clone)]
pub(super) enum Node {
    File(FileNode),
    Directory(BTreeMap<String, Name>),
}

#[derive(Debug, Clone, Default)]
pub(super) struct FileNode {
    pub(super) now: Vec<u8>,
    synced: Vec<u8>,
    /// A sync has failed: no later one writes the bytes.
    spoilt: bool,
    pub(super) locked: bool,
}

/// A name in a directory, and the node that it names.
#[derive(Debug, Clone, Default)]
pub(super) struct Name {
    now: Option<usize>,
    synced: Option<usize>,
    /// Earlier nodes of the name since the last sync.
    between: Vec<Option<usize>>,
}

impl Name {
    fn set(&mut self, node: Option<usize>) {
        self.between.push(self.now);
        self.now = node;
    }
}

impl State {
    /// A disk with an empty root.
    pub(super) fn new() -> State {
        let nodes = vec![Node::Directory(BTreeMap::new())];
        State { nodes, steps: 0, crashed: false, restarts: 0 }
    }

    pub(super) fn alive(&self) -> io::Result<()> {
        if self.crashed { Err(crashed()) } else { Ok(()) }
    }

    fn directory(&mut self, node: usize) -> io::Result<&mut BTreeMap<String, Name>> {
        match &mut self.nodes[node] {
            Node::Directory(names) => Ok(names),
            Node::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn file(&mut self, node: usize) -> io::Result<&mut FileNode> {
        match &mut self.nodes[node] {
            Node::File(file) => Ok(file),
            Node::Directory(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    /// The node of a path.
    pub(super) fn find(&mut self, path: &Path) -> io::Result<usize> {
        let mut node = 0;
        for part in path.components() {
            if let Component::Normal(part) = part {
                let name = self.directory(node)?.get(part.to_string_lossy().as_ref());
                node = name.and_then(|name| name.now).ok_or(ErrorKind::NotFound)?;
            }
        }
        Ok(node)
    }

    /// A name in its directory, as it may be set.
    fn name(&mut self, path: &Path) -> io::Result<&mut Name> {
        let node = self.find(path.parent().unwrap_or(path))?;
        let name = path.file_name().ok_or(ErrorKind::AlreadyExists)?.to_string_lossy();
        Ok(self.directory(node)?.entry(name.into_owned()).or_default())
    }

    /// Lets a free name name a node.
    fn name_new(&mut self, path: &Path, node: usize) -> io::Result<()> {
        let name = self.name(path)?;
        if name.now.is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        name.set(Some(node));
        Ok(())
    }

    /// Starts again after a crash. What was not synced is lost, or kept by chance.
    pub(super) fn restart(&mut self, survival: Survival) {
        self.crashed = false;
        self.restarts += 1;
        let mut choices = match survival {
            Survival::Some(seed) => Some(Choices(seed)),
            Survival::Synced | Survival::Killed => None,
        };
        for node in &mut self.nodes {
            if let Node::File(file) = node {
                file.locked = false;
            }
            if survival != Survival::Killed {
                node.survive(&mut choices);
            }
        }
    }

    pub(super) fn make(&mut self, path: &Path, node: Node) -> io::Result<usize> {
        let number = self.nodes.len();
        self.name_new(path, number)?;
        self.nodes.push(node);
        Ok(number)
    }

    /// Syncs the names of a directory.
    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let node = self.find(path)?;
        self.directory(node)?.retain(|_, name| {
            (name.synced, name.between) = (name.now, Vec::new());
            name.now.is_some()
        });
        Ok(())
    }

    pub(super) fn list(&mut self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let node = self.find(path)?;
        let names = self.directory(node)?.clone();
        let there = names.into_iter().filter_map(|(name, node)| Some((name, node.now?)));
        let entry = |(name, node): (String, usize)| {
            let bytes = self.file(node).ok().map(|file| file.now.len() as u64);
            DirEntry { name, bytes }
        };
        Ok(there.map(entry).collect())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.find(from)?;
        self.file(node)?;
        self.name(to)?.set(Some(node));
        self.name(from)?.set(None);
        Ok(())
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.find(from)?;
        self.file(node)?;
        self.name_new(to, node)
    }

    pub(super) fn unlink(&mut self, path: &Path) -> io::Result<()> {
        let node = self.find(path)?;
        self.file(node)?;
        self.name(path)?.set(None);
        Ok(())
    }
}

impl Node {
    /// Leaves what survives a crash: by chance, or only what was synced.
    fn survive(&mut self, choices: &mut Option<Choices>) {
        match self {
            Node::File(file) => {
                if let Some(choices) = choices {
                    choices.mix(file);
                }
                file.now = file.synced.clone();
                file.spoilt = false;
            }
            Node::Directory(names) => {
                for name in names.values_mut() {
                    if let Some(choices) = choices {
                        name.between.push(name.now);
                        let choice = choices.below(name.between.len() as u64 + 1) as usize;
                        name.synced = name.between.get(choice).copied().unwrap_or(name.synced);
                    }
                    *name = Name { now: name.synced, synced: name.synced, ..Name::default() };
                }
            }
        }
    }
}

impl FileNode {
    /// An empty file that is being written.
    pub(super) fn new() -> FileNode {
        FileNode { locked: true, ..FileNode::default() }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.now.extend(bytes);
    }

    pub(super) fn sync(&mut self, succeeds: bool) {
        self.spoilt |= !succeeds;
        if !self.spoilt {
            self.synced = self.now.clone();
        }
    }
}

/// Choices from a seed.
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// Lets a beginning of the unsynced bytes reach the disk. Pieces of the beginning may be zeros.
    fn mix(&mut self, file: &mut FileNode) {
        if file.now == file.synced {
            return;
        }
        let length = self.below(file.now.len() as u64 + 1) as usize;
        let kept = file.synced.len().min(length);
        let (old, new) = file.now[..length].split_at(kept);
        let mut mixed = old.to_vec();
        for piece in new.chunks(16) {
            let zeros = self.below(4) == 0;
            mixed.extend(piece.iter().map(|byte| if zeros { 0 } else { *byte }));
        }
        mixed.extend(file.synced.get(mixed.len()..).unwrap_or_default());
        file.synced = mixed;
    }
}

pub(super) fn crashed() -> io::Error {
    io::Error::other("the program has crashed")
}
