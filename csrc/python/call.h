/* call.h: the type graphdiff.runtime._call.Call, what a bound call is made of; part of the cffi module's own source, which
 * includes Python.h before it (the first stable ABI, of 3.2) and graphdiff.h.
 *
 *   Call(address of a gd_job, results, resume, instead)
 *
 * Calling it runs the job from the beginning, without Python's lock as every run does, and returns `results`. If the run does not end well or
 * not at once, resume(status) goes on or raises. instead: None, or what is called and its result dropped, where running takes more than that
 * (locks of variables). The job is borrowed: a subclass holds it.
 *
 * A method in Python that does the same takes 0.1 us more, of 0.24 for a product of 8 x 8: half of it is the way from
 * the object to the method's frame, the rest what cffi does around a C function. It is a module of its own, in the library of the cffi module
 * (an import of that name from the same file finds its PyInit), for cffi makes the other one's. */
#include <structmember.h>

typedef struct call_object {
    PyObject_HEAD
    const gd_job *job;
    PyObject *results, *resume, *instead;
} call_object;

static int call_init(PyObject *self, PyObject *args, PyObject *names)
{
    call_object *c = (call_object *)self;
    PyObject *address, *results, *resume, *instead;
    if (names && PyDict_Size(names) > 0) {
        PyErr_SetString(PyExc_TypeError, "Call takes no keyword arguments");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "OOOO", &address, &results, &resume, &instead)) return -1;
    void *const job = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred()) return -1;
    PyObject *const before[] = {c->results, c->resume, c->instead};
    Py_INCREF(results), Py_INCREF(resume), Py_INCREF(instead);
    c->job = job, c->results = results, c->resume = resume, c->instead = instead;
    for (int i = 0; i < 3; i++) Py_XDECREF(before[i]);
    return 0;
}

/* What an own function of Python gives is dropped: NULL is an error. */
static int call_other(PyObject *function, PyObject *argument)
{
    PyObject *const given = argument ? PyObject_CallFunctionObjArgs(function, argument, NULL) : PyObject_CallFunctionObjArgs(function, NULL);
    Py_XDECREF(given);
    return given ? 0 : -1;
}

static PyObject *call_call(PyObject *self, PyObject *args, PyObject *names)
{
    call_object *c = (call_object *)self;
    if (PyTuple_Size(args) > 0 || (names && PyDict_Size(names) > 0)) {
        PyErr_SetString(PyExc_TypeError, "a bound call takes no arguments: its arrays are fixed");
        return NULL;
    }
    if (!c->job) {
        PyErr_SetString(PyExc_TypeError, "a call that was never bound");
        return NULL;
    }
    if (c->instead != Py_None) {
        if (call_other(c->instead, NULL)) return NULL;
    } else {
        int status;
        Py_BEGIN_ALLOW_THREADS
        status = gd_run_job(c->job);
        Py_END_ALLOW_THREADS
        if (status != GD_OK) {
            PyObject *const number = PyLong_FromLong(status);
            const int failed = !number || call_other(c->resume, number);
            Py_XDECREF(number);
            if (failed) return NULL;
        }
    }
    Py_INCREF(c->results);
    return c->results;
}

static int call_traverse(PyObject *self, visitproc visit, void *arg)
{
    call_object *c = (call_object *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(c->results);
    Py_VISIT(c->resume);
    Py_VISIT(c->instead);
    return 0;
}

/* Garbage may still be called, by what is freed before it: as one that was never bound. */
static int call_clear(PyObject *self)
{
    call_object *c = (call_object *)self;
    c->job = NULL;
    Py_CLEAR(c->results);
    Py_CLEAR(c->resume);
    Py_CLEAR(c->instead);
    return 0;
}

static void call_free(PyObject *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    call_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMemberDef call_members[] = {
    {"outputs", T_OBJECT_EX, offsetof(call_object, results), READONLY, "the arrays that a call writes, which it returns"},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot call_slots[] = {
    {Py_tp_init, (void *)call_init}, {Py_tp_call, (void *)call_call}, {Py_tp_traverse, (void *)call_traverse}, {Py_tp_clear, (void *)call_clear},
    {Py_tp_dealloc, (void *)call_free}, {Py_tp_members, call_members}, {Py_tp_doc, (void *)"Runs a job and returns what it wrote."}, {0, NULL},
};
static PyType_Spec call_spec = {
    "graphdiff.runtime._call.Call", sizeof(call_object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, call_slots,
};

static PyModuleDef call_module = {
    PyModuleDef_HEAD_INIT, "_call", "Bound calls without a frame of Python.", 0, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__call(void);
PyMODINIT_FUNC PyInit__call(void)
{
    PyObject *const module = PyModule_Create(&call_module);
    PyObject *const type = module ? PyType_FromSpec(&call_spec) : NULL;
    if (!type || PyModule_AddObject(module, "Call", type)) {
        Py_XDECREF(type);
        Py_XDECREF(module);
        return NULL;
    }
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    return module;
}
