//! Ranks: processes of a job that a launcher starts, or a person by hand, on any hosts. A launcher
//! tells the number of a rank in the environment.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use millstream::program::cluster::PROCESSES_MAX;
use millstream_arguments::ProcessArguments;
use millstream_fabric::setup::Token;

use crate::failure::{Failure, usage};
use crate::meeting::{Meeting, token_of};

/// The place of a rank, as options.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct RankArguments {
    /// Number of this process, from 0, in a job whose processes are started by hand; Slurm, mpirun
    /// and Kubernetes tell the number
    #[arg(long, value_name = "R", requires = "of", conflicts_with = "processes")]
    rank: Option<usize>,
    /// Number of ranks
    #[arg(long, value_name = "N", conflicts_with = "processes")]
    of: Option<usize>,
    /// Address of process 0
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// A file with the job's secret
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// Allow other hosts: connections are not encrypted
    #[arg(long)]
    insecure: bool,
}

/// The place of this process.
#[derive(Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) of: usize,
    /// Processes on this host.
    pub(crate) on_host: usize,
    /// Where process 0 listens.
    pub(crate) address: String,
    secret: Secret,
    /// For messages.
    by: &'static str,
}

/// Source of the job's token.
#[derive(Debug, PartialEq)]
enum Secret {
    File(PathBuf),
    /// Process 0 draws a token for the others.
    Meeting(Meeting),
}

/// Facts from a launcher.
struct Told {
    by: &'static str,
    rank: usize,
    of: Option<usize>,
    on_host: Option<usize>,
    /// The host of process 0, if it is known.
    host: Option<String>,
    /// A name of this run of the launcher.
    run: Option<String>,
}

/// A variable of the environment.
type Env<'e> = &'e dyn Fn(&str) -> Option<String>;

impl RankArguments {
    /// The place of this process among ranks, if there are any.
    pub(crate) fn found(&self, processes: &ProcessArguments) -> Result<Option<Place>, Failure> {
        let env = |name: &str| std::env::var(name).ok();
        self.place(processes.given().is_some(), &env).map_err(|e| usage(&e))
    }

    /// The place of this process, unless it is to start the others itself. `is_given`: the number
    /// of processes was given.
    fn place(&self, is_given: bool, env: Env<'_>) -> Result<Option<Place>, String> {
        let told = match self.rank {
            Some(rank) => Some(Told::alone("--rank", rank)),
            None if is_given => None,
            None => told(env)?,
        };
        let Some(told) = told else {
            let given = [
                ("--of", self.of.is_some()),
                ("--listen", self.listen.is_some()),
                ("--token-file", self.token_file.is_some()),
                ("--insecure", self.insecure),
            ];
            return match given.iter().find(|(_, is_given)| *is_given) {
                Some((option, _)) => Err(format!(
                    "{option} is for processes that you start yourself, and there is no --rank"
                )),
                None => Ok(None),
            };
        };
        let of = match self.of.or(told.of) {
            Some(of) => of,
            None => number(env, "MILLSTREAM_OF")?.ok_or_else(|| {
                format!("{} tells no number of processes\n  help: say --of N", told.by)
            })?,
        };
        if !(1..=PROCESSES_MAX).contains(&of) || told.rank >= of {
            return Err(format!(
                "process {} of {of} ({}): there are 1 to {PROCESSES_MAX} processes, numbered from 0",
                told.rank, told.by
            ));
        }
        if of == 1 {
            return Ok(None);
        }
        let address = self.address(&told, of, env)?;
        let on_host = told.on_host.unwrap_or(if is_loopback(&address) { of } else { 1 });
        let secret = self.secret(&told, of == on_host, env)?;
        Ok(Some(Place { rank: told.rank, of, on_host, address, secret, by: told.by }))
    }

    fn address(&self, told: &Told, of: usize, env: Env<'_>) -> Result<String, String> {
        let address = match self.listen.clone().or_else(|| env("MILLSTREAM_LISTEN")) {
            Some(address) => address,
            None => {
                let host = match &told.host {
                    _ if told.on_host == Some(of) => Some("127.0.0.1"),
                    host => host.as_deref(),
                };
                let (Some(host), Some(run)) = (host, &told.run) else {
                    return Err(format!(
                        "{} does not tell where process 0 listens\n  help: say --listen HOST:PORT, \
                         the same for all processes",
                        told.by
                    ));
                };
                format!("{host}:{}", port_of(run))
            }
        };
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none_or(|port| port == 0) {
            let found = format!("--listen {address}: expected HOST:PORT");
            return Err(format!("{found}\n  help: for example 10.0.0.1:7700"));
        }
        match is_loopback(&address) || self.insecure {
            true => Ok(address),
            false => Err(format!(
                "{address} is for other hosts, and nothing between the processes is encrypted\n  \
                 help: in a network that you trust say --insecure"
            )),
        }
    }

    fn secret(&self, told: &Told, is_one_host: bool, env: Env<'_>) -> Result<Secret, String> {
        let file = self.token_file.clone();
        if let Some(path) = file.or_else(|| env("MILLSTREAM_TOKEN_FILE").map(PathBuf::from)) {
            return Ok(Secret::File(path));
        }
        let Some(run) = &told.run else {
            return Err(
                "the processes need a secret\n  help: say --token-file PATH, a file with a \
                        long random text, the same for all processes"
                    .into(),
            );
        };
        Ok(Secret::Meeting(Meeting::of(run, is_one_host, env)))
    }
}

impl Told {
    /// A number, and nothing else.
    fn alone(by: &'static str, rank: usize) -> Told {
        Told { by, rank, of: None, on_host: None, host: None, run: None }
    }
}

impl Place {
    /// A line for the user.
    pub(crate) fn line(&self) -> String {
        let Place { rank, of, address, by, .. } = self;
        format!("process {rank} of {of} ({by}); process 0 listens at {address}")
    }

    /// The job's token. In process 0, what it returns besides has to live until all have joined.
    pub(crate) fn token(&self) -> Result<(Token, Option<Meeting>), String> {
        match &self.secret {
            Secret::File(path) => Ok((file_token(path)?, None)),
            Secret::Meeting(meeting) if self.rank == 0 => {
                Ok((meeting.open()?, Some(meeting.clone())))
            }
            Secret::Meeting(meeting) => Ok((meeting.wait()?, None)),
        }
    }
}

/// Characters of a secret at least.
const SECRET_BYTES_MIN: usize = 16;

fn file_token(path: &Path) -> Result<Token, String> {
    let text = std::fs::read(path).map_err(|e| format!("--token-file {}: {e}", path.display()))?;
    let text = text.trim_ascii();
    match text.len() < SECRET_BYTES_MIN {
        true => Err(format!(
            "--token-file {}: {} characters; expected {SECRET_BYTES_MIN} at least\n  help: openssl \
             rand -hex 32 makes a secret",
            path.display(),
            text.len()
        )),
        false => Ok(token_of(text)),
    }
}

fn is_loopback(address: &str) -> bool {
    let mut found = address.to_socket_addrs().into_iter().flatten().peekable();
    found.peek().is_some() && found.all(|address: SocketAddr| address.ip().is_loopback())
}

/// A port for this run.
fn port_of(run: &str) -> u16 {
    let bytes = token_of(run.as_bytes());
    20_000 + u16::from_le_bytes([bytes.bytes()[0], bytes.bytes()[1]]) % 10_000
}

fn number(env: Env<'_>, name: &str) -> Result<Option<usize>, String> {
    let Some(text) = env(name) else { return Ok(None) };
    let wrong = |_| format!("{name}={text}: expected a number");
    text.trim().parse().map(Some).map_err(wrong)
}

/// The place that the environment tells.
fn told(env: Env<'_>) -> Result<Option<Told>, String> {
    if let Some(rank) = number(env, "MILLSTREAM_RANK")? {
        return Ok(Some(Told::alone("MILLSTREAM_RANK", rank)));
    }
    // Only in a step of `srun`, not in the script of a batch job.
    if let (Some(rank), Some(of)) =
        (number(env, "SLURM_PROCID")?, number(env, "SLURM_STEP_NUM_TASKS")?)
    {
        return Ok(Some(slurm(rank, of, env)));
    }
    if let (Some(rank), Some(of)) =
        (number(env, "OMPI_COMM_WORLD_RANK")?, number(env, "OMPI_COMM_WORLD_SIZE")?)
    {
        let on_host = number(env, "OMPI_COMM_WORLD_LOCAL_SIZE")?;
        let run = env("PMIX_NAMESPACE").or_else(|| env("OMPI_MCA_ess_base_jobid"));
        let run = run.map(|run| format!("mpi-{run}"));
        return Ok(Some(Told { by: "Open MPI", rank, of: Some(of), on_host, host: None, run }));
    }
    if let Some(rank) = number(env, "JOB_COMPLETION_INDEX")? {
        return Ok(Some(Told::alone("Kubernetes' Indexed Job", rank)));
    }
    Ok(None)
}

fn slurm(rank: usize, of: usize, env: Env<'_>) -> Told {
    let first = env("SLURM_STEP_NODELIST").and_then(|nodes| first_node(&nodes));
    let here = number(env, "SLURM_NODEID").ok().flatten();
    let tasks = env("SLURM_STEP_TASKS_PER_NODE").and_then(|tasks| tasks_of(&tasks, here?));
    let part = |name| env(name).unwrap_or_default();
    let names = ["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"];
    let run = format!("slurm-{}", names.map(part).join("-"));
    Told { by: "Slurm", rank, of: Some(of), on_host: tasks, host: first, run: Some(run) }
}

/// The first node of a list such as `node[001-003,007],other`.
fn first_node(nodes: &str) -> Option<String> {
    let end = nodes.find(['[', ',']).unwrap_or(nodes.len());
    let (head, rest) = nodes.split_at(end);
    let Some(rest) = rest.strip_prefix('[') else {
        return (!head.is_empty()).then(|| head.to_string());
    };
    let (range, tail) = rest.split_once(']')?;
    let first = range.split(['-', ',']).next().filter(|first| !first.is_empty())?;
    // A name may go on behind the numbers, and have more numbers there.
    let tail = tail.split(',').next().unwrap_or_default();
    match tail.is_empty() {
        true => Some(format!("{head}{first}")),
        false => first_node(tail).map(|tail| format!("{head}{first}{tail}")),
    }
}

/// The tasks of a node by a list such as `2(x3),1`.
fn tasks_of(tasks: &str, node: usize) -> Option<usize> {
    let mut left = node;
    for part in tasks.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        match left.checked_sub(times) {
            Some(rest) => left = rest,
            None => return count.parse().ok(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(arguments: &RankArguments, env: &[(&str, &str)]) -> Result<Option<Place>, String> {
        let find = |name: &str| {
            env.iter().find(|(one, _)| *one == name).map(|(_, value)| value.to_string())
        };
        arguments.place(false, &find)
    }

    fn with_token() -> RankArguments {
        RankArguments { token_file: Some("token".into()), ..RankArguments::default() }
    }

    /// As Slurm 23.11 sets them in `srun -N 3 -n 5`, on the second node.
    const SLURM: [(&str, &str); 8] = [
        ("SLURM_JOB_ID", "4711"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "2"),
        ("SLURM_NTASKS", "5"),
        ("SLURM_STEP_NUM_TASKS", "5"),
        ("SLURM_STEP_NODELIST", "node[007,009-010]"),
        ("SLURM_STEP_TASKS_PER_NODE", "2(x2),1"),
        ("SLURM_NODEID", "1"),
    ];

    #[test]
    fn slurm_tells_the_place() {
        let open = RankArguments { insecure: true, ..RankArguments::default() };
        let found = place(&open, &SLURM).unwrap().unwrap();
        assert_eq!((found.rank, found.of, found.on_host), (2, 5, 2));
        let (host, port) = found.address.split_once(':').unwrap();
        assert!(host == "node007" && (20_000..30_000).contains(&port.parse().unwrap()));
        let refused = place(&RankArguments::default(), &SLURM).unwrap_err();
        assert!(refused.contains("say --insecure"), "{refused}");
        // In the script of a batch job.
        let script: Vec<_> = SLURM.into_iter().filter(|(name, _)| !name.contains("STEP")).collect();
        assert_eq!(place(&RankArguments::default(), &script), Ok(None));
    }

    #[test]
    fn nodes_of_slurm_are_found() {
        for (nodes, expected) in [
            ("node1", "node1"),
            ("node1,node2", "node1"),
            ("node[001-003,007]", "node001"),
            ("n[1,3]-ib,x", "n1-ib"),
            ("rack[2-3]n[10-12],other", "rack2n10"),
        ] {
            assert_eq!(first_node(nodes).as_deref(), Some(expected), "{nodes}");
        }
        for nodes in ["", "node[", "node[]", "[1"] {
            assert_eq!(first_node(nodes), None, "{nodes}");
        }
        let tasks = [0, 1, 2, 3, 4].map(|node| tasks_of("2(x3),1", node));
        assert_eq!(tasks, [Some(2), Some(2), Some(2), Some(1), None]);
    }

    #[test]
    fn mpi_on_one_host_needs_no_option() {
        // As Open MPI 4.1 sets them in `mpirun -n 3`.
        let env = [
            ("OMPI_COMM_WORLD_RANK", "2"),
            ("OMPI_COMM_WORLD_SIZE", "3"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "3"),
            ("PMIX_NAMESPACE", "1894776833"),
            ("PMIX_RANK", "2"),
        ];
        let found = place(&RankArguments::default(), &env).unwrap().unwrap();
        assert_eq!((found.rank, found.of, found.on_host), (2, 3, 3));
        assert!(found.address.starts_with("127.0.0.1:2"));
        assert!(matches!(found.secret, Secret::Meeting(_)));
        let several = [&env[..2], &[("OMPI_COMM_WORLD_LOCAL_SIZE", "1")]].concat();
        let refused = place(&RankArguments::default(), &several).unwrap_err();
        assert!(refused.contains("say --listen HOST:PORT"), "{refused}");
        // A job without others.
        let alone = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")];
        assert_eq!(place(&RankArguments::default(), &alone), Ok(None));
    }

    #[test]
    fn kubernetes_tells_the_index_and_options_the_rest() {
        let env = [("JOB_COMPLETION_INDEX", "3"), ("MILLSTREAM_OF", "4")];
        let found = RankArguments { insecure: true, ..with_token() };
        let refused = place(&found, &env).unwrap_err();
        assert!(refused.contains("say --listen"), "{refused}");
        let env = [&env[..], &[("MILLSTREAM_LISTEN", "job-0.job:7700")]].concat();
        let found = place(&found, &env).unwrap().unwrap();
        assert_eq!((found.rank, found.of, found.on_host), (3, 4, 1));
        assert_eq!(found.address, "job-0.job:7700");
    }

    #[test]
    fn options_come_first_and_mistakes_are_named() {
        let by_hand = |rank, of, listen: &str| RankArguments {
            rank: Some(rank),
            of: Some(of),
            listen: Some(listen.into()),
            ..with_token()
        };
        let found = place(&by_hand(1, 2, "127.0.0.1:7700"), &SLURM).unwrap().unwrap();
        assert_eq!((found.rank, found.of, found.on_host), (1, 2, 2));
        for (arguments, env, said) in [
            (by_hand(2, 2, "127.0.0.1:7700"), &[][..], "process 2 of 2"),
            (by_hand(0, 65, "127.0.0.1:7700"), &[], "1 to 64 processes"),
            (by_hand(0, 2, "127.0.0.1"), &[], "expected HOST:PORT"),
            (by_hand(0, 2, "127.0.0.1:0"), &[], "expected HOST:PORT"),
            (by_hand(0, 2, "10.0.0.1:7700"), &[], "say --insecure"),
            (with_token(), &[], "there is no --rank"),
            (with_token(), &[("MILLSTREAM_RANK", "x")], "MILLSTREAM_RANK=x: expected a number"),
            (with_token(), &[("MILLSTREAM_RANK", "0")], "say --of N"),
            (
                RankArguments { token_file: None, ..by_hand(0, 2, "127.0.0.1:7700") },
                &[],
                "say --token-file PATH",
            ),
        ] {
            let error = place(&arguments, env).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
