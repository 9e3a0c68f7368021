# Ends all commands of an engine after the engine itself has ended, in whatever way.
# $1: the name of the run, with which every mark begins. Then the folders of its control groups, if it has any: each holds
# those of sessions, which hold those of commands, which may have made more.
# Standard input is a pipe that only the engine holds open: it ends with the engine.
trap '' HUP INT QUIT TERM
while read -r _; do :; done
run=$1
shift

pause() { sleep 0.1 2>/dev/null || sleep 1; }

# The fields of a process after the name of its program, which stands in parentheses and may hold anything.
fields_of() {
    line=
    while read -r part; do line="$line $part"; done 2>/dev/null < "/proc/$1/stat"
    fields=${line##*)}
}

add() {
    case $found in *" $1 "*) ;; *) found="$found$1 " ;; esac
}

# $1: a process, $2: its parent, $3: its state.
add_child() {
    [ "$3" = Z ] && return
    case $found in *" $2 "*) add "$1" && grown=yes ;; esac
}

# All processes that carry a mark, that are in a control group, or that descend from such a process.
find_all() {
    found=" "
    for file in $(grep -lsF "$run" /proc/[0-9]*/environ); do
        id=${file#/proc/}
        add "${id%/environ}"
    done
    for group; do
        for file in "$group"/*/*/cgroup.procs "$group"/*/*/*/cgroup.procs "$group"/*/*/*/*/cgroup.procs; do
            [ -f "$file" ] || continue
            while read -r id; do add "$id"; done < "$file"
        done
    done
    [ "$found" = " " ] && return
    grown=yes
    while [ -n "$grown" ]; do
        grown=
        for folder in /proc/[0-9]*; do
            id=${folder#/proc/}
            case $found in *" $id "*) continue ;; esac
            fields_of "$id"
            set -- $fields
            add_child "$id" "$2" "$1"
        done
    done
}

kill_all() {
    for group; do
        for file in "$group"/*/pids.max; do [ -f "$file" ] && echo 0 > "$file"; done
        for file in "$group"/*/cgroup.kill; do [ -f "$file" ] && echo 1 > "$file"; done
    done
    # What is stopped makes no more processes.
    kill -STOP $alive
    kill -KILL $alive
}

round=0
while [ "$round" -lt 100 ]; do
    find_all "$@"
    alive=
    for id in $found; do
        fields_of "$id"
        case $fields in "" | " Z"* | " X"*) ;; *) alive="$alive $id" ;; esac
    done
    [ -z "$alive" ] && break
    if [ "$round" -eq 0 ]; then
        kill -TERM $alive
    elif [ "$round" -ge 3 ]; then
        kill_all "$@"
    fi
    round=$((round + 1))
    pause
done
for group; do
    while [ -d "$group" ] && [ "$round" -lt 120 ]; do
        rmdir "$group"/*/*/*/* "$group"/*/*/* "$group"/*/* "$group"/* "$group" && break
        round=$((round + 1))
        pause
    done
done
exit 0
