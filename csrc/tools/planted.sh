#!/bin/sh
# Faults planted in a copy of the core, one at a time: a test program has to fail, or a sanitizer to say so. What nobody
# notices is a hole in the tests. Run by `make planted`, in csrc; names of faults as arguments choose some of them.
#
# tests/planted.txt: paragraphs of five lines: name, variant (plain, asan, tsan or valgrind) and test program; what the
# output has to contain (an extended regular expression); file; text; the text put in its place. The text must be there once.
set -u
chosen=$*
cd "$(dirname "$0")/.." || exit 2
top=build/planted
rm -rf $top/src && mkdir -p $top/src && cp -r Makefile flags.txt core include isa kernels ops tests $top/src || exit 2
cd $top/src || exit 2
# One instruction set, the one that every compiler knows: its kernels come from the same text.
rm -f isa/*_avx*.c isa/*_neon.c
log=../log.txt
passed=0 failed=0

replace() {     # file from to: prints the text with the only occurrence of `from` replaced; 1 when there is not one
    FROM=$2 TO=$3 awk 'BEGIN { from = ENVIRON["FROM"]; to = ENVIRON["TO"] }
        { at = index($0, from)
          if (at) { seen++; $0 = substr($0, 1, at - 1) to substr($0, at + length(from)) }
          print }
        END { exit seen != 1 }' "$1"
}

build() {       # variant program
    case $1 in
    plain) make -s VARIANT=plain CFLAGS='-O1 -DGD_SCALAR_ONLY' "build/plain/tests/$2" ;;
    asan) make -s VARIANT=asan CFLAGS="-O1 -g -DGD_SCALAR_ONLY -fsanitize=address,undefined -fno-sanitize-recover=all" "build/asan/tests/$2" ;;
    tsan) make -s VARIANT=tsan CFLAGS="-O1 -g -DGD_SCALAR_ONLY -fsanitize=thread" "build/tsan/tests/$2" ;;
    valgrind) make -s VARIANT=valgrind CFLAGS='-O1 -g -DGD_SCALAR_ONLY' "build/valgrind/tests/$2" ;;
    esac >$log 2>&1
}

run() {         # variant program
    case $1 in
    tsan) set -- "$1" "$2" $(command -v setarch >/dev/null 2>&1 && echo setarch "$(uname -m)" -R) ;;
    valgrind) set -- "$1" "$2" valgrind -q --error-exitcode=9 ;;
    esac
    binary=build/$1/tests/$2 && shift 2
    ASAN_OPTIONS=allocator_may_return_null=1 GRAPHDIFF_ISA=scalar timeout 600 "$@" "$binary" scalar >$log 2>&1
}

plant() {       # name variant program wanted file from to
    if [ "$2" = valgrind ] && ! command -v valgrind >/dev/null; then
        echo "left out: $1 (valgrind is not installed)"
        return
    fi
    if ! replace "$5" "$6" "$7" >../changed; then
        echo "FAILED: $1: the text is not in $5 exactly once"; failed=$((failed + 1))
        return
    fi
    cp "$5" ../original && cp ../changed "$5"
    if ! build "$2" "$3"; then
        echo "FAILED: $1: it does not compile"; cat $log; failed=$((failed + 1))
    elif run "$2" "$3"; then
        echo "FAILED: $1: nobody noticed"; failed=$((failed + 1))
    elif ! grep -qE "$4" $log; then
        echo "FAILED: $1: noticed, but not as /$4/:"; tail -5 $log; failed=$((failed + 1))
    else
        echo "noticed: $1 ($2 $3)"; passed=$((passed + 1))
    fi
    cp ../original "$5"
}

# Before anything is planted every program passes, or a failure would say nothing.
sound() {       # variant program
    build "$1" "$2" && run "$1" "$2" || { echo "FAILED: $2 ($1) without any fault"; tail -5 $log; exit 1; }
}

seen=
while IFS= read -r head; do
    case $head in ''|'#'*) continue ;; esac
    IFS= read -r wanted && IFS= read -r file && IFS= read -r from && IFS= read -r to || exit 2
    name=${head%%:*} rest=${head#*: }
    variant=${rest% *} program=${rest#* }
    case " $chosen " in '  '|*" $name "*) ;; *) continue ;; esac
    case $seen in *" $variant/$program "*) ;; *)
        if [ "$variant" != valgrind ] || command -v valgrind >/dev/null; then sound "$variant" "$program"; fi
        seen="$seen $variant/$program " ;;
    esac
    plant "$name" "$variant" "$program" "$wanted" "$file" "$from" "$to"
done <tests/planted.txt
echo "planted faults: $passed noticed, $failed not"
test $failed -eq 0 && test $passed -gt 0
