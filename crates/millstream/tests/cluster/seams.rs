//! Tests of the two seams: jobs over another transport, with processes of another launcher.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millstream::program::cluster::{
    Acceptor, Cause, Early, Invitation, Launch, Launched, Launcher, Node, ProcessFailure, Stream,
    Transport,
};
use serde_json::json;

use super::job::{End, Job, Lines, Role, Stub, stub};

/// Sockets in a directory of the file system.
struct Files(PathBuf, AtomicUsize);

impl Files {
    fn new(name: &str) -> Arc<Files> {
        let directory = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Arc::new(Files(directory, AtomicUsize::new(0)))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

impl Transport for Files {
    fn listen(&self) -> io::Result<Box<dyn Acceptor>> {
        let path = self.0.join(self.1.fetch_add(1, Ordering::SeqCst).to_string());
        Ok(Box::new(Listening(UnixListener::bind(&path)?, path)))
    }
    fn connect(&self, address: &str, _: Duration) -> io::Result<Arc<dyn Stream>> {
        Ok(Arc::new(Connected(UnixStream::connect(address)?)))
    }
}

struct Listening(UnixListener, PathBuf);

impl Acceptor for Listening {
    fn address(&self) -> io::Result<String> {
        Ok(self.1.display().to_string())
    }
    fn accept(&self) -> io::Result<(Arc<dyn Stream>, String)> {
        Ok((Arc::new(Connected(self.0.accept()?.0)), "a file".into()))
    }
}

struct Connected(UnixStream);

impl Stream for Connected {
    fn read(&self, bytes: &mut [u8], patience: Duration) -> io::Result<usize> {
        self.0.set_read_timeout(Some(patience))?;
        (&self.0).read(bytes)
    }
    fn write(&self, bytes: &[u8], patience: Duration) -> io::Result<()> {
        self.0.set_write_timeout(Some(patience))?;
        (&self.0).write_all(bytes)
    }
    fn close(&self, how: Shutdown) {
        let _ = self.0.shutdown(how);
    }
}

/// Members as threads of this process, started over a transport.
struct Threads {
    transport: Arc<dyn Transport>,
    /// Parts of the threads to come, by process.
    parts: Mutex<VecDeque<Stub>>,
    /// Processes that were killed.
    killed: Arc<Mutex<Vec<usize>>>,
}

struct Thread {
    process: usize,
    member: Option<JoinHandle<End>>,
    killed: Arc<Mutex<Vec<usize>>>,
}

impl Launcher for Threads {
    fn launch(&self, invitation: &Invitation) -> Result<Option<Box<dyn Launched>>, ProcessFailure> {
        let process = invitation.process;
        let Some(part) = self.parts.lock().unwrap().pop_front() else {
            return Err(ProcessFailure::new(process, Cause::Start("has no thread".into())));
        };
        let (transport, invitation) = (self.transport.clone(), invitation.clone());
        let member =
            thread::spawn(move || Node::join(&*transport, &invitation)?.serve(|_, _| Ok(part)));
        let killed = self.killed.clone();
        Ok(Some(Box::new(Thread { process, member: Some(member), killed })))
    }
}

impl Launched for Thread {
    fn has_ended(&mut self) -> bool {
        self.member.as_ref().is_none_or(JoinHandle::is_finished)
    }
    fn end(&mut self) -> Option<String> {
        let member = self.member.take_if(|member| member.is_finished())?;
        member.join().unwrap().err().map(|failure| format!("ended: {failure}"))
    }
    fn kill(&mut self) {
        if !self.has_ended() {
            self.killed.lock().unwrap().push(self.process);
        }
    }
}

#[test]
fn a_job_runs_over_sockets_of_files() {
    let roles = [Some(Role::Quick); 4];
    let mut job = Job::try_over(Files::new("seam-quick"), &roles, |_| "scan", |_| {}).unwrap();
    let expected: Vec<_> = (0..4).map(|p| json!({"rows": p})).collect();
    assert_eq!(job.run_all(3).unwrap(), vec![expected; 2]);
    job.cluster.take().unwrap().end().unwrap();
    job.others.into_iter().for_each(|other| other.join().unwrap().unwrap());
    // The same failure is reported everywhere, as over the loopback interface.
    let roles = [Some(Role::Endless), Some(Role::Failing), Some(Role::Endless)];
    let job = Job::try_over(Files::new("seam-failing"), &roles, |_| "scan", |_| {}).unwrap();
    let (failure, ends) = job.fail();
    assert_eq!(failure.process, 1);
    assert!(ends.into_iter().all(|end| end.unwrap_err() == failure));
}

/// A whole job of threads over sockets of files; `parts` of so many further processes are there.
fn launched(parts: usize) -> (Result<usize, Early<()>>, Vec<usize>) {
    let transport = Files::new("seam-launch");
    let (done, commits) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let make = |process| stub(process, 3, Role::Quick, &done, &commits);
    let parts = Mutex::new((1..=parts).map(make).collect());
    let killed = Arc::new(Mutex::new(Vec::new()));
    let launcher = Threads { transport: transport.clone(), parts, killed: killed.clone() };
    let launch = Launch {
        processes: 3,
        launcher: Arc::new(launcher),
        transport,
        given: None,
        log: Lines::default().log(),
    };
    let ended = launch.run(
        |_| Ok(()),
        |cluster| {
            let mut own = make(0);
            cluster.set_up("sim", &json!("task"), || Ok(()))?;
            assert!(cluster.execute(&mut own, 1, 17)?);
            cluster.connect(&mut own)?;
            Ok(cluster.run(&mut own)?.len())
        },
    );
    let killed = killed.lock().unwrap().clone();
    (ended, killed)
}

#[test]
fn a_launcher_starts_members_as_threads() {
    let (ended, killed) = launched(2);
    assert!(matches!(ended, Ok(3)));
    assert!(killed.is_empty(), "{killed:?}");
}

#[test]
fn a_launcher_that_fails_ends_the_job_and_the_started_members() {
    let (ended, killed) = launched(1);
    let Err(Early::Failed(failure, _)) = ended else { panic!("it has not failed") };
    assert_eq!(failure.to_string(), "process 2 has no thread");
    // Process 1 was told to end, and has done so.
    assert!(killed.is_empty(), "{killed:?}");
}
