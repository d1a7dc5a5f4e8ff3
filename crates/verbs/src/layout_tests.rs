//! A test that compares `raw` with the installed `infiniband/verbs.h`. A small C program prints the
//! header's sizes, offsets and constants, and they must equal ours.

use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use crate::raw::*;
use crate::{AsyncEvent, Operation, Sge, Status};

/// A C expression, with its value here.
type Fact = (String, u64);

/// Facts about structures: `whole` ones are as large as in C, of others only the beginning is
/// declared.
macro_rules! layouts {
    ($facts:ident: $($kind:ident $name:ident {
        $($field:ident $(= $member:literal)?),* $(,)?
    })*) => {
        $(
            layouts!(@$kind $facts $name);
            $(
                let member = [stringify!($field) $(, $member)?];
                $facts.push((
                    format!("offsetof(struct {}, {})", stringify!($name), member[member.len() - 1]),
                    offset_of!($name, $field) as u64,
                ));
            )*
        )*
    };
    (@whole $facts:ident $name:ident) => {
        $facts.push((format!("sizeof(struct {})", stringify!($name)), size_of::<$name>() as u64));
    };
    (@beginning $facts:ident $name:ident) => {};
}

/// Facts about constants that have the same name in C.
macro_rules! constants {
    ($($name:ident),* $(,)?) => { vec![$((stringify!($name).to_string(), $name as u64)),*] };
}

fn structures() -> Vec<Fact> {
    let mut facts = Vec::new();
    layouts! { facts:
        whole ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
        whole ibv_device_attr {
            max_qp_wr, max_cqe, max_qp_rd_atom, max_qp_init_rd_atom, max_mcast_grp,
            max_mcast_qp_attach, phys_port_cnt,
        }
        whole ibv_port_attr {
            state, active_mtu, max_msg_sz, lid, link_layer, flags, port_cap_flags2,
        }
        whole ibv_async_event { element, event_type }
        whole ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags,
            pkey_index, slid, sl, dlid_path_bits,
        }
        whole ibv_pd { context, handle }
        whole ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        whole ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        whole ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        whole ibv_qp_cap {
            max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data,
        }
        whole ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        whole ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags,
            cap, ah_attr, alt_ah_attr, pkey_index, max_rd_atomic, max_dest_rd_atomic,
            min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_timeout, rate_limit,
        }
        whole ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr, unused = "qp_type",
        }
        whole ibv_recv_wr { wr_id, next, sg_list, num_sge }
        whole ibv_comp_channel { context, fd, refcnt }
        beginning ibv_ah { context }
        beginning ibv_cq { context, channel, cq_context, handle, cqe }
        beginning ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num }
        beginning ibv_device { node_type, transport_type, name, dev_name }
        whole ibv_context_ops { poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv }
        beginning ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors }
    }
    let target = offset_of!(ibv_send_wr, wr);
    facts.extend([
        ("sizeof(struct ibv_sge)".into(), size_of::<Sge>() as u64),
        ("offsetof(struct ibv_sge, addr)".into(), offset_of!(Sge, address) as u64),
        ("offsetof(struct ibv_sge, length)".into(), offset_of!(Sge, bytes) as u64),
        ("offsetof(struct ibv_sge, lkey)".into(), offset_of!(Sge, local_key) as u64),
    ]);
    for (member, offset) in [
        ("rdma.remote_addr", offset_of!(ibv_send_rdma, remote_addr)),
        ("rdma.rkey", offset_of!(ibv_send_rdma, rkey)),
        ("atomic.remote_addr", offset_of!(ibv_send_atomic, remote_addr)),
        ("atomic.compare_add", offset_of!(ibv_send_atomic, compare_add)),
        ("atomic.swap", offset_of!(ibv_send_atomic, swap)),
        ("atomic.rkey", offset_of!(ibv_send_atomic, rkey)),
        ("ud.ah", offset_of!(ibv_send_ud, ah)),
        ("ud.remote_qpn", offset_of!(ibv_send_ud, remote_qpn)),
        ("ud.remote_qkey", offset_of!(ibv_send_ud, remote_qkey)),
    ] {
        let expression = format!("offsetof(struct ibv_send_wr, wr.{member})");
        facts.push((expression, (target + offset) as u64));
    }
    facts
}

fn numbers() -> Vec<Fact> {
    let mut facts: Vec<Fact> = constants! {
        IBV_QPT_RC, IBV_QPT_UD, IBV_QP_STATE, IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
        IBV_QP_QKEY, IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT,
        IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
        IBV_QP_SQ_PSN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_CAP, IBV_QP_DEST_QPN, IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED,
        IBV_SEND_INLINE, IBV_WC_WITH_IMM,
    };
    let named: &[(&str, u32)] = &[
        ("IBV_ACCESS_LOCAL_WRITE", crate::Access::LOCAL_WRITE.0),
        ("IBV_ACCESS_REMOTE_WRITE", crate::Access::REMOTE_WRITE.0),
        ("IBV_ACCESS_REMOTE_READ", crate::Access::REMOTE_READ.0),
        ("IBV_ACCESS_REMOTE_ATOMIC", crate::Access::REMOTE_ATOMIC.0),
        ("IBV_MTU_256", crate::Mtu::B256 as u32),
        ("IBV_MTU_4096", crate::Mtu::B4096 as u32),
        ("IBV_PORT_ACTIVE", 4),
        ("IBV_LINK_LAYER_ETHERNET", 2),
        ("IBV_ATOMIC_HCA", 1),
        ("IBV_ATOMIC_GLOB", 2),
        ("IBV_GID_TYPE_IB", 0),
        ("IBV_GID_TYPE_ROCE_V1", 1),
        ("IBV_GID_TYPE_ROCE_V2", 2),
        ("IBV_QPS_RESET", crate::State::Reset as u32),
        ("IBV_QPS_INIT", crate::State::Initialized as u32),
        ("IBV_QPS_RTR", crate::State::ReadyToReceive as u32),
        ("IBV_QPS_RTS", crate::State::ReadyToSend as u32),
        ("IBV_QPS_SQD", crate::State::Draining as u32),
        ("IBV_QPS_SQE", crate::State::SendError as u32),
        ("IBV_QPS_ERR", crate::State::Error as u32),
        ("IBV_WC_SUCCESS", Status::SUCCESS.0),
        ("IBV_WC_LOC_LEN_ERR", Status::LOCAL_LENGTH_ERROR.0),
        ("IBV_WC_LOC_QP_OP_ERR", Status::LOCAL_OPERATION_ERROR.0),
        ("IBV_WC_LOC_PROT_ERR", Status::LOCAL_PROTECTION_ERROR.0),
        ("IBV_WC_WR_FLUSH_ERR", Status::FLUSHED.0),
        ("IBV_WC_LOC_ACCESS_ERR", Status::LOCAL_ACCESS_ERROR.0),
        ("IBV_WC_REM_INV_REQ_ERR", Status::REMOTE_INVALID_REQUEST.0),
        ("IBV_WC_REM_ACCESS_ERR", Status::REMOTE_ACCESS_ERROR.0),
        ("IBV_WC_REM_OP_ERR", Status::REMOTE_OPERATION_ERROR.0),
        ("IBV_WC_RETRY_EXC_ERR", Status::RETRIES_EXCEEDED.0),
        ("IBV_WC_RNR_RETRY_EXC_ERR", Status::RECEIVER_NOT_READY.0),
        ("IBV_EVENT_CQ_ERR", AsyncEvent::COMPLETION_QUEUE_ERROR),
        ("IBV_EVENT_QP_FATAL", AsyncEvent::QUEUE_PAIR_FATAL),
        ("IBV_EVENT_QP_REQ_ERR", AsyncEvent::QUEUE_PAIR_REQUEST_ERROR),
        ("IBV_EVENT_QP_ACCESS_ERR", AsyncEvent::QUEUE_PAIR_ACCESS_ERROR),
        ("IBV_EVENT_PATH_MIG_ERR", 7),
        ("IBV_EVENT_PORT_ACTIVE", AsyncEvent::PORT_ACTIVE),
        ("IBV_EVENT_PORT_ERR", AsyncEvent::PORT_ERROR),
        ("IBV_EVENT_SM_CHANGE", 13),
        ("IBV_EVENT_CLIENT_REREGISTER", 17),
        ("IBV_EVENT_GID_CHANGE", 18),
    ];
    facts.extend(named.iter().map(|(name, value)| (name.to_string(), u64::from(*value))));
    facts
}

/// The header's answers to these expressions, in their order. `name` is the test's.
fn ask_header(name: &str, expressions: &[&str]) -> Vec<u64> {
    let directory = std::env::temp_dir().join(format!("millstream-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (source, program) = (directory.join("layout.c"), directory.join("layout"));
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\nint main(void) {\n",
    );
    for expression in expressions {
        writeln!(text, "    printf(\"%llu\\n\", (unsigned long long)({expression}));").unwrap();
    }
    text.push_str("    return 0;\n}\n");
    std::fs::write(&source, text).unwrap();
    let compiled = Command::new("cc").arg("-o").args([&program, &source]).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program).output().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn layouts_and_constants_are_those_of_the_installed_header() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        assert!(std::env::var_os("CI").is_none(), "install libibverbs-dev: .ci/setup verbs");
        eprintln!("not compared: there is no infiniband/verbs.h (Debian: libibverbs-dev)");
        return;
    }
    let mut facts = structures();
    facts.extend(numbers());
    let expressions: Vec<&str> = facts.iter().map(|(expression, _)| expression.as_str()).collect();
    let answers = ask_header("layout", &expressions);
    assert_eq!(answers.len(), facts.len());
    let differences: Vec<String> = facts
        .iter()
        .zip(&answers)
        .filter(|((_, ours), theirs)| ours != *theirs)
        .map(|((expression, ours), theirs)| format!("{expression}: {ours} here, {theirs} there"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn completions_are_named_by_the_header_s_numbers() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        assert!(std::env::var_os("CI").is_none(), "install libibverbs-dev: .ci/setup verbs");
        return;
    }
    let named = [
        ("IBV_WC_SEND", Operation::Send),
        ("IBV_WC_RDMA_WRITE", Operation::Write),
        ("IBV_WC_RDMA_READ", Operation::Read),
        ("IBV_WC_COMP_SWAP", Operation::CompareAndSwap),
        ("IBV_WC_FETCH_ADD", Operation::FetchAndAdd),
        ("IBV_WC_RECV", Operation::Receive),
        ("IBV_WC_RECV_RDMA_WITH_IMM", Operation::ReceiveWriteWithImmediate),
        ("IBV_WC_TSO", Operation::Other(7)),
    ];
    let answers = ask_header("completions", &named.map(|(name, _)| name));
    for ((name, operation), number) in named.iter().zip(answers) {
        assert_eq!(Operation::from_raw(number as u32), *operation, "{name}");
    }
}
