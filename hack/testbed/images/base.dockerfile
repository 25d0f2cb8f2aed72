# What a user takes from an official Python image, made by debootstrap.
FROM scratch
ADD root.tar /
ENV LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
CMD ["python3"]
