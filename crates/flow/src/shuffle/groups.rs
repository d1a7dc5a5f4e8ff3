//! Transmission groups: the receivers of each copy (paper, section 4.1).

use crate::shuffle::error::{Error, Result};

/// Sets of destinations. A row goes to all destinations of its group; a destination may be in no,
/// one or several groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    groups: Vec<Vec<usize>>,
}

impl Groups {
    /// Each destination is a group: every row goes to one.
    pub fn repartition(destinations: usize) -> Groups {
        Groups { groups: (0..destinations).map(|one| vec![one]).collect() }
    }

    /// One group of all destinations: every row goes to all.
    pub fn broadcast(destinations: usize) -> Groups {
        Groups { groups: vec![(0..destinations).collect()] }
    }

    /// Any groups, of destinations below `destinations`, each once in a group.
    pub fn multicast(groups: Vec<Vec<usize>>, destinations: usize) -> Result<Groups> {
        for group in &groups {
            for (at, number) in group.iter().copied().enumerate() {
                if number >= destinations || group[..at].contains(&number) {
                    return Err(Error::Destination { number, count: destinations });
                }
            }
        }
        if groups.is_empty() {
            let why = "a shuffle needs one".into();
            return Err(Error::Setting { name: "groups", value: Some(0), why });
        }
        Ok(Groups { groups })
    }

    /// How many groups there are.
    #[expect(
        clippy::len_without_is_empty,
        reason = "there is at least one, but for no destination"
    )]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Destinations of a group.
    ///
    /// # Panics
    /// If there is no such group.
    #[inline]
    pub fn destinations(&self, group: usize) -> &[usize] {
        &self.groups[group]
    }

    /// The group of a hash, of which all bits count: the share of the range of hashes in which it
    /// lies.
    ///
    /// # Panics
    /// Never: there is a group.
    #[inline]
    pub fn of_hash(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.groups.len() as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_as_the_patterns_say() {
        let groups = Groups::repartition(3);
        assert_eq!((groups.len(), groups.destinations(2)), (3, &[2][..]));
        let groups = Groups::broadcast(3);
        assert_eq!((groups.len(), groups.destinations(0)), (1, &[0, 1, 2][..]));
        // The paper's figure 2: what goes to group 0 reaches B and C.
        let groups = Groups::multicast(vec![vec![1, 2], vec![3]], 4).unwrap();
        assert_eq!(groups.destinations(0), [1, 2]);
        assert!(Groups::multicast(vec![vec![4]], 4).is_err());
        assert!(Groups::multicast(vec![vec![1, 1]], 4).is_err());
        assert!(Groups::multicast(Vec::new(), 4).is_err());
    }

    #[test]
    fn hashes_are_shared_out_evenly() {
        let groups = Groups::repartition(3);
        assert_eq!(groups.of_hash(0), 0);
        assert_eq!(groups.of_hash(u64::MAX / 3 + 1), 1);
        assert_eq!(groups.of_hash(u64::MAX / 3), 0);
        assert_eq!(groups.of_hash(u64::MAX), 2);
    }
}
