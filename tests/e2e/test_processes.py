"""Jobs on several processes: the output is the same, and nothing is left behind, however the job ends."""

import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import harness
import pytest
from conftest import WINDOW, check_place, events, generated
from jobs import ENDLESS, PATIENCE_SECONDS

FABRICS = ["shm", "tcp"]

BOUNDED = generated(rows=60_000, step="5 ms", more=", 'splits' = '4'").replace("BIGINT, ts", "BIGINT, v DOUBLE, ts") + """
SELECT window_start, k, COUNT(*) AS n, SUM(v) AS total, MIN(v) AS least
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, k;
"""


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("processes, workers", [(2, 1), (2, 2), (4, 1)])
def test_any_number_of_processes_prints_the_same_bytes(script, fabric, processes, workers):
    alone = script.run(BOUNDED, workers=1)
    together = script.run(BOUNDED, "--processes", processes, "--fabric", fabric, workers=workers)
    assert (alone.code, together.code) == (0, 0), together.stderr
    assert len(alone.stdout.splitlines()) > 100
    assert together.stdout == alone.stdout
    for name in ("records", "windows", "rows", "late_records"):
        assert together.stats[name] == alone.stats[name], name
    assert "60,000 records" in together.stderr


def test_a_file_is_shared_by_processes(script):
    rows = "".join(f"2024-01-01 00:{i // 600 % 60:02}:{i // 10 % 60:02},{i % 7},{i}\n" for i in range(30_000))
    script.data("events.csv", "ts,k,v\n" + rows)
    alone = script.run(events() + WINDOW, workers=1)
    together = script.run(events() + WINDOW, "--processes", 3, workers=1)
    assert together.code == 0, together.stderr
    assert together.stdout == alone.stdout and len(alone.stdout.splitlines()) > 100
    assert together.stats["records"] == 30_000


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_standard_input_is_read_by_process_0(script, kind):
    script.data("events.csv", "ts,k,v\n" + "".join(f"2024-01-01 00:00:{i % 60:02},{i % 7},{i}\n" for i in range(5_000)))
    sql = script.write(events(path="/dev/stdin", delay=" - INTERVAL '1' MINUTE") + WINDOW)
    outputs = []
    for processes in (1, 3):
        command = [str(harness.program()), "run", str(sql), "--format", "csv", "--processes", str(processes)]
        with open(script.folder / "events.csv", "rb") as file:
            source = {"stdin": file} if kind == "file" else {"input": file.read()}
            done = subprocess.run(command, capture_output=True, timeout=PATIENCE_SECONDS, **source)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1] and len(outputs[0].splitlines()) > 30


@pytest.mark.parametrize("processes", [1, 2])
def test_windows_that_wait_for_a_hundred_years_fire_at_the_end(script, processes):
    late = script.run("SET 'allowed_lateness' = '36500 days';\n" + BOUNDED, "--processes", processes, workers=2)
    assert late.code == 0 and late.stdout == script.run(BOUNDED, workers=1).stdout, late.stderr
    longer = script.run("SET 'allowed_lateness' = '36501 days';\n" + BOUNDED, "--processes", processes)
    assert longer.code == 2 and "36500 days at the most" in longer.stderr, longer.stderr


def test_a_script_where_other_processes_cannot_be_sent_to_is_refused(script):
    """Its folder has no name in UTF-8, and messages are JSON."""
    folder = os.fsencode(script.folder) + b"/\xff"
    os.mkdir(folder)
    with open(folder + b"/one.sql", "w", encoding="ascii") as file:
        file.write(generated(rows=10) + "SELECT COUNT(*) AS n FROM events;")
    run = [os.fsencode(harness.program()), b"run", folder + b"/one.sql"]
    for processes, code in ((b"1", 0), (b"2", 2)):
        done = subprocess.run([*run, b"--processes", processes], capture_output=True, timeout=PATIENCE_SECONDS)
        assert done.returncode == code, done.stderr
        assert (b"name in UTF-8" in done.stderr) == (code == 2) and b"internal error" not in done.stderr, done.stderr


def test_every_statement_is_executed_in_every_process(script):
    sql = (generated(rows=1_000, step="100 ms") + "SET 'workers' = '2';\n"
           "CREATE VIEW few AS SELECT * FROM events WHERE k < 3;\n"
           "EXPLAIN SELECT k FROM few;\n"
           "SELECT k, COUNT(*) AS n FROM few GROUP BY k;\n"
           "CREATE TABLE out (k BIGINT, n BIGINT) WITH ('connector' = 'print');\n"
           "INSERT INTO out SELECT k, COUNT(*) FROM events GROUP BY k;\n"
           "DROP VIEW few;\nSELECT COUNT(*) AS n, COUNT(NOW()) AS m FROM events;\n")
    alone = script.run(sql)
    together = script.run(sql, "--processes", 2)
    assert together.code == 0, together.stderr
    assert together.stdout == alone.stdout
    assert together.stdout.decode().splitlines()[-1] == "1000,1000"
    assert len(together.stats["queries"]) == 3


def test_sql_on_the_command_line(script):
    sql = BOUNDED.replace("\n", " ")
    alone, together = (harness.run("run", "-e", sql, "--format", "csv", "--processes", n) for n in (1, 2))
    assert together.code == 0, together.stderr
    assert together.stdout == alone.stdout


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_killed_process_ends_the_job_with_its_name(job, fabric, capsys):
    running = job(ENDLESS, 3, fabric)
    start = time.monotonic()
    os.kill(running.others[1], signal.SIGKILL)
    code, stderr = running.end()
    seconds = time.monotonic() - start
    with capsys.disabled():
        print(f"\n{fabric}: all are gone {seconds:.2f} s after one of three was killed")
    assert code == 1
    assert "error: process 2 was killed by signal 9 (SIGKILL)\n" in stderr, stderr
    # It is noticed at once, and all stop within two seconds; the rest is for a busy machine.
    assert seconds < 20


@pytest.mark.parametrize("process", [1, 2])
@pytest.mark.parametrize("fabric", FABRICS)
def test_a_process_that_hangs_ends_the_job_with_its_name(job, fabric, process, capsys):
    running = job(ENDLESS, 3, fabric)
    start = time.monotonic()
    os.kill(running.others[process - 1], signal.SIGSTOP)
    code, stderr = running.end()
    with capsys.disabled():
        print(f"\n{fabric}: all are gone {time.monotonic() - start:.2f} s after one of three has stopped")
    assert code == 1
    assert f"error: process {process} has not answered for 2 s\n" in stderr, stderr


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_machine_that_stands_still_for_a_while_ends_no_job(job, fabric):
    running = job(ENDLESS, 3, fabric)
    everybody = [running.main.pid, *running.others]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in everybody:
            os.kill(pid, number)
        # Longer than the silence that is taken for death.
        time.sleep(3)
    for _ in range(50):
        assert running.main.stdout.readline()
    running.main.send_signal(signal.SIGINT)
    code, stderr = running.end()
    assert code == 130 and "error" not in stderr, stderr


@pytest.mark.parametrize("fabric", FABRICS)
def test_no_process_outlives_the_one_that_was_asked(job, fabric):
    running = job(ENDLESS, 4, fabric)
    running.main.kill()
    code, stderr = running.end()
    assert code == -signal.SIGKILL
    for process in (1, 2, 3):
        assert f"process {process} stops: process 0 has " in stderr, stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_processes(job, number):
    running = job(ENDLESS, 3, "shm")
    running.main.send_signal(number)
    code, stderr = running.end()
    assert code == 130
    assert "error" not in stderr, stderr


def test_ctrl_c_at_the_terminal_is_left_to_the_process_that_was_asked(job):
    running = job(ENDLESS, 3, "shm")
    for pid in running.others:
        assert os.getpgid(pid) == pid != os.getpgid(running.main.pid)
    running.main.send_signal(signal.SIGINT)
    assert running.end()[0] == 130


def test_ctrl_c_ends_a_job_whose_output_nobody_reads(job):
    running = job(generated() + "SELECT k, ts FROM events;", 2, "shm")
    time.sleep(1)
    running.main.send_signal(signal.SIGINT)
    assert running.main.wait(timeout=PATIENCE_SECONDS) == 130
    assert running.end()[0] == 130


def test_a_killed_process_ends_a_job_whose_output_nobody_reads(job):
    running = job(generated() + "SELECT k, ts FROM events;", 2, "shm")
    time.sleep(1)
    os.kill(running.others[0], signal.SIGKILL)
    assert running.main.wait(timeout=PATIENCE_SECONDS) == 1
    assert "process 1 was killed by signal 9 (SIGKILL)" in running.end()[1]


def test_a_closed_pipe_ends_all_processes_quietly(job):
    running = job(generated() + "SELECT k, ts FROM events;", 3, "shm")
    running.main.stdout.close()
    running.main.stdout = None
    code, stderr = running.end()
    assert code == 0 and "error" not in stderr, stderr


def test_limit_ends_an_endless_input_in_all_processes(script):
    result = script.run(generated() + "SELECT k FROM events WHERE k >= 0 LIMIT 5;", "--processes", 3, workers=1)
    assert result.code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 6


def test_a_full_disk_ends_the_job(script):
    with open("/dev/full", "wb") as full:
        command = [str(harness.program()), "run", str(script.write(BOUNDED)), "--format", "csv", "--processes", "3"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                              timeout=PATIENCE_SECONDS)
    assert done.returncode == 1
    assert b"process 0: " in done.stderr and b"No space left on device" in done.stderr, done.stderr


def test_a_record_that_one_process_cannot_read_is_told_with_its_number(script):
    rows = "".join(f"2024-01-01 00:00:{i // 10_000:02},{i % 7},{i}\n" for i in range(200_000))
    script.data("events.csv", "ts,k,v\n" + rows + "2024-01-01 00:01:00,x,1\n")
    sql = events() + WINDOW.replace("COUNT(*)", "SUM(v)")
    result = harness.run("run", script.write(sql), "--format", "csv", "--processes", 3, "--workers", 1)
    assert result.code == 1
    assert re.search(r"^error: process [0-2]: .*events\.csv:200002:", result.stderr, re.M), result.stderr


def listener(pid: int) -> int:
    """The port on which a process listens for control connections: its only one, over shared memory."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(entry)
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            return int(fields[1].split(":")[1], 16)
    raise AssertionError("it listens nowhere")


def test_strangers_at_the_control_port_change_nothing(job):
    running = job(ENDLESS, 2, "shm")
    port = listener(running.main.pid)
    for said in (b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n", b"MSCALLER" + bytes(40),
                 b"MSCALLER\x01\0\0\0" + bytes(36), bytes(range(256)) * 10):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.settimeout(PATIENCE_SECONDS)
            stranger.sendall(said)
            try:
                assert stranger.recv(100) == b""
            except ConnectionResetError:
                pass
    # Windows go on firing.
    for _ in range(50):
        assert running.main.stdout.readline()
    running.main.send_signal(signal.SIGINT)
    code, stderr = running.end()
    assert code == 130
    for words in ("does not speak Millstream's control protocol", "it speaks version 0 of the control protocol",
                  "it does not hold this job's token"):
        assert f"refused a connection from 127.0.0.1:" in stderr and words in stderr, stderr


def test_nothing_secret_is_in_arguments_or_environment(job):
    running = job(ENDLESS, 2, "shm")
    (other,) = running.others
    words = Path(f"/proc/{other}/cmdline").read_bytes().split(b"\0")
    assert words[1:] == [b"node", b""]
    ours = Path(f"/proc/{running.main.pid}/environ").read_bytes()
    assert Path(f"/proc/{other}/environ").read_bytes() == ours
    running.main.send_signal(signal.SIGINT)
    running.end()


@pytest.mark.parametrize("words, says", [
    (["run", "-e", "SELECT 1", "--processes", "0"], "0 is not in 1..=64"),
    (["run", "-e", "SELECT 1", "--processes", "65"], "65 is not in 1..=64"),
    (["run", "-e", "SELECT 1", "--processes", "-1"], "invalid value '-1'"),
    (["run", "-e", "SELECT 1", "--processes", "two"], "invalid value 'two'"),
    (["run", "-e", "SELECT 1", "--processes", "2", "--fabric", "shn"], "'shm'"),
    (["run", "-e", "SELECT 1", "--processes", "64", "--workers", "5"],
     "64 processes of 5 workers are 320, and 256 are the most\n  help: use at most --workers 4"),
    (["run", "-e", "SELECT 1", "--processes", "2", "--workers", "0"], "setting 'workers': '0' does not fit"),
    (["run", "-e", "SELECT 1", "--processes", "2", "--set", "simulate=3"], "use --processes 1"),
    (["run", "-e", "SELEKT 1", "--processes", "2"], "SELEKT"),
    (["run", "-e", "SELECT k FROM nothing", "--processes", "2"], "nothing"),
    (["run", "missing.sql", "--processes", "2"], "cannot read missing.sql"),
    (["node"], "is started by `millstream run`"),
])
def test_arguments_that_make_no_sense_are_refused(words, says):
    result = harness.run(*words, stats=False)
    assert (result.code, result.stdout) == (2, b""), result.stderr
    assert says in result.stderr, result.stderr
    assert result.stderr.count("error:") == 1, result.stderr


@pytest.mark.parametrize("key, value, says", [
    ("workers", "'200'", "2 processes of 200 workers are 400, and 256 are the most"),
    ("simulate", "'3'", "it runs all workers on one thread of one process"),
])
def test_settings_of_the_script_that_do_not_go_with_several_processes_are_shown(script, key, value, says):
    sql = generated(rows=10) + f"SET '{key}' = {value};\nSET 'batch.rows' = '10';\nSELECT COUNT(*) AS n FROM events;"
    result = script.run(sql, "--processes", 2)
    assert (result.code, result.stdout) == (2, b""), result.stderr
    assert f"error: setting '{key}': {says}\n" in result.stderr, result.stderr
    check_place(result, sql, value)


def test_settings_of_the_command_line_are_not_looked_for_in_the_script(script):
    sql = generated(rows=10) + "SET 'workers' = '200';\nSET 'workers' = '2';\nSELECT COUNT(*) AS n FROM events;"
    result = script.run(sql, "--processes", 2)
    assert (result.code, result.stdout) == (0, b"n\n10\n"), result.stderr
    # What SET says is not used.
    result = script.run(sql.replace("'2'", "'200'"), "--processes", 2, workers=1)
    assert (result.code, result.stdout) == (0, b"n\n10\n"), result.stderr
    result = script.run(sql, "--processes", 2, workers=200)
    assert result.code == 2 and "2 processes of 200 workers" in result.stderr, result.stderr
    assert "query.sql" not in result.stderr


def test_the_users_own_mistake_is_not_told_as_that_of_a_process(script):
    path = script.write(BOUNDED + "SELECT kk FROM events;")
    alone = harness.run("run", path, stats=False)
    assert alone.code == 2 and "kk" in alone.stderr
    mistake = alone.stderr[alone.stderr.index("error"):]
    for _ in range(10):
        result = harness.run("run", path, "--processes", 4, "--workers", 1, stats=False)
        assert result.code == 2
        assert result.stderr[result.stderr.index("error"):] == mistake


def test_a_machine_without_rdma_says_how_to_do_without(script):
    if b"verbs: available" in harness.run("fabric", stats=False).stdout:
        pytest.skip("this machine has RDMA")
    path = script.write(generated(rows=10) + "SELECT COUNT(*) AS n FROM events;")
    for result in (harness.run("run", path, "--processes", 2, "--fabric", "verbs", stats=False),
                   harness.bench("ysb_small", "--records", 1000, "--processes", 2, "--fabric", "verbs")):
        assert (result.code, result.stdout) == (1, b""), result.stderr
        found = re.search(r"^error: process [01]: fabric 'verbs': RDMA: not available: .*\n  help: --fabric shm ",
                          result.stderr, re.M)
        assert found and result.stderr.count("error:") == 1, result.stderr


def test_a_budget_beyond_all_addresses_does_no_harm(script):
    sql = generated(rows=1_000) + "SELECT COUNT(*) AS n FROM events;"
    for memory in ("200TB", "16777215TB"):
        result = script.run(sql, "--processes", 2, workers=1, memory=memory)
        assert (result.code, result.stdout) == (0, b"n\n1000\n"), result.stderr


def test_help_tells_of_processes_and_not_of_nodes():
    text = harness.run("run", "--help", stats=False).stdout.decode()
    assert "--processes <P>" in text and "--fabric <FABRIC>" in text
    assert "node" not in harness.run("--help", stats=False).stdout.decode()


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("workload", ["ysb_small", "ysb_str", "nb7", "cm", "ro"])
def test_a_benchmark_is_right_on_several_processes(workload, fabric):
    for processes, workers in ((2, 1), (3, 2)):
        result = harness.bench(workload, "--records", 100_003, "--processes", processes, "--workers", workers,
                               "--fabric", fabric, "--json")
        assert result.code == 0, result.stderr
        found = json.loads(result.stdout)
        assert found["ok"] is True and found["records"] == 100_003
        assert (found["processes"], found["workers"], found["fabric"]) == (processes, workers, fabric)
        assert found["exchange"] == "late-merge"
        # It did take place between processes.
        assert found["rows_sent"] > 0 and found["bytes_sent"] > 0 and found["messages_sent"] > 0
        # From where it stands, but for runs of less than 4 KB. Where many keys are sent at once those are few.
        assert found["bytes_copied"] < 4096 * found["messages_sent"]
        if (workload, processes) in (("ysb_small", 2), ("cm", 2)):
            assert found["bytes_copied"] < found["bytes_sent"] / 10


@pytest.mark.parametrize("exchange, processes, workers", [
    ("repartition", 1, 2), ("repartition", 2, 1), ("repartition", 2, 2), ("interleaved", 1, 2), ("interleaved", 3, 1)])
def test_a_benchmark_is_right_however_records_are_exchanged(exchange, processes, workers):
    for workload in ("ysb_str", "nb7", "cm"):
        result = harness.bench(workload, "--records", 100_003, "--processes", processes, "--workers", workers,
                               "--exchange", exchange, "--json")
        assert result.code == 0, result.stderr
        found = json.loads(result.stdout)
        assert found["ok"] is True and found["exchange"] == exchange
