#!/usr/bin/env bash
# A small real Slurm on this machine: munge, slurmctld and two slurmd. For tests; root.
#
#   slurm_cluster.sh start    starts it, waits until both nodes are idle
#   slurm_cluster.sh stop     ends exactly what start started
#
# All files lie in $MLBENCH_SLURM_DIR (default /tmp/mlbench-slurm); /etc/slurm/slurm.conf becomes a link to ours for as
# long as it runs, and what was there is put back. Only loopback is used.
set -euo pipefail

dir="${MLBENCH_SLURM_DIR:-/tmp/mlbench-slurm}"
conf=/etc/slurm/slurm.conf
nodes=(mlnode1 mlnode2)
controller_port=17817
first_port=17901

running() { [ -f "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }

await() { # SECONDS DESCRIPTION COMMAND...
    local limit=$1 what=$2
    shift 2
    for _ in $(seq $((limit * 5))); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.2
    done
    echo "slurm_cluster.sh: $what did not happen within $limit s; logs are in $dir" >&2
    return 1
}

write_conf() {
    local cpus memory
    cpus=$(nproc)
    memory=$(awk '/MemTotal/ { print int($2 / 1024 / 2) }' /proc/meminfo)
    {
        echo "ClusterName=mlbench"
        echo "SlurmctldHost=localhost"
        echo "SlurmctldPort=$controller_port"
        echo "SlurmUser=root"
        echo "SlurmdUser=root"
        echo "AuthType=auth/munge"
        echo "AuthInfo=socket=$dir/munge.socket"
        echo "CryptoType=crypto/munge"
        echo "MpiDefault=none"
        echo "ProctrackType=proctrack/linuxproc"
        echo "TaskPlugin=task/none"
        echo "SelectType=select/cons_tres"
        echo "SelectTypeParameters=CR_Core"
        echo "SchedulerParameters=sched_interval=1,batch_sched_delay=0"
        echo "ReturnToService=2"
        # Nodes are believed to have the CPUs that are written below.
        echo "SlurmdParameters=config_overrides"
        echo "SlurmctldPidFile=$dir/slurmctld.pid"
        echo "SlurmdPidFile=$dir/slurmd.%n.pid"
        echo "SlurmctldLogFile=$dir/slurmctld.log"
        echo "SlurmdLogFile=$dir/slurmd.%n.log"
        echo "StateSaveLocation=$dir/state"
        echo "SlurmdSpoolDir=$dir/spool.%n"
        echo "AccountingStorageType=accounting_storage/none"
        echo "JobAcctGatherType=jobacct_gather/none"
        # Limits that tests can wait for.
        echo "OverTimeLimit=0"
        echo "KillWait=3"
        echo "InactiveLimit=0"
        echo "MinJobAge=300"
        for index in "${!nodes[@]}"; do
            # More CPUs than there are: tests place ranks, they do not measure.
            echo "NodeName=${nodes[index]} NodeHostname=$(hostname) NodeAddr=127.0.0.1" \
                "Port=$((first_port + index)) CPUs=$((cpus * 2)) RealMemory=$memory State=UNKNOWN"
        done
        echo "PartitionName=tests Nodes=$(IFS=,; echo "${nodes[*]}") Default=YES MaxTime=30 State=UP OverSubscribe=NO"
    } >"$dir/slurm.conf"
}

start_munge() {
    # A daemon of our own, so that a system's munge is left alone.
    head -c 1024 /dev/urandom >"$dir/munge.key"
    chmod 400 "$dir/munge.key"
    munged --force --key-file "$dir/munge.key" --socket "$dir/munge.socket" --pid-file "$dir/munge.pid" \
        --log-file "$dir/munge.log" --seed-file "$dir/munge.seed"
}

start() {
    if running "$dir/slurmctld.pid"; then
        echo "slurm_cluster.sh: already running" >&2
        return 0
    fi
    for program in munged slurmctld slurmd sbatch; do
        command -v "$program" >/dev/null || {
            echo "slurm_cluster.sh: $program is missing (apt-get install slurm-wlm munge)" >&2
            return 1
        }
    done
    rm -rf "$dir"
    mkdir -p "$dir/state" /etc/slurm
    chmod 755 "$dir"
    for node in "${nodes[@]}"; do mkdir -p "$dir/spool.$node"; done
    start_munge
    write_conf
    if [ -e "$conf" ] && [ ! -L "$conf" ]; then mv "$conf" "$conf.before-mlbench"; fi
    ln -sfn "$dir/slurm.conf" "$conf"
    slurmctld
    for node in "${nodes[@]}"; do slurmd -N "$node"; done
    await 60 "both nodes idle" idle
}

idle() { [ "$(sinfo --noheader --Node --format '%N %T' | grep -c ' idle$')" -eq "${#nodes[@]}" ]; }

end() { # PIDFILE
    running "$1" || return 0
    local pid
    pid=$(cat "$1")
    kill "$pid" 2>/dev/null || true
    await 20 "end of process $pid" gone "$pid" || kill -KILL "$pid" 2>/dev/null || true
}

gone() { ! kill -0 "$1" 2>/dev/null; }

stop() {
    [ -d "$dir" ] || return 0
    if running "$dir/slurmctld.pid"; then
        squeue --noheader --format %i 2>/dev/null | while read -r job; do scancel "$job" || true; done
        await 15 "empty queue" empty || true
    fi
    for node in "${nodes[@]}"; do end "$dir/slurmd.$node.pid"; done
    end "$dir/slurmctld.pid"
    end "$dir/munge.pid"
    if [ -L "$conf" ] && [ "$(readlink "$conf")" = "$dir/slurm.conf" ]; then rm -f "$conf"; fi
    if [ -e "$conf.before-mlbench" ]; then mv "$conf.before-mlbench" "$conf"; fi
    rm -rf "$dir"
}

empty() { [ -z "$(squeue --noheader)" ]; }

case "${1:-}" in
start | stop) "$1" ;;
*)
    echo "usage: slurm_cluster.sh start|stop" >&2
    exit 2
    ;;
esac
